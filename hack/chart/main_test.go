package main

import (
	"os"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPolicies: the chart has the policies of the sources.
func TestPolicies(t *testing.T) {
	want, err := policies()
	gputest.Must(t, err)
	got, err := os.ReadFile("../../charts/daybreak/templates/policies.yaml")
	gputest.Must(t, err)
	gputest.Equal(t, "the chart has others: run make generate", string(want), string(got))
}
