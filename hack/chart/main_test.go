package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPolicies: the chart has the policies of the sources.
func TestPolicies(t *testing.T) {
	want, err := policies()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../charts/daybreak/templates/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the chart has others: run make generate (-want +got):\n%s", diff)
	}
}
