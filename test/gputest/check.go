package gputest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Must ends the test with the error, if there is one.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check reports the error, if there is one, and lets the test go on.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Equal reports how what the test got differs from what it wants.
func Equal(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ErrorHas reports an error that is missing or does not contain the text.
func ErrorHas(t testing.TB, what, text string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: error %v, want one with %q", what, err, text)
	}
}
