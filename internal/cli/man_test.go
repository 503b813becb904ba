package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMan: each command has a page, with its flags by group and its text as it is.
func TestMan(t *testing.T) {
	root := tree()
	rise := root.Commands()[0]
	rise.Long = "Rise rises.\n\n.hidden and\n'quoted' and \\ stay\n\n  east   -x\n  west"
	rise.Example = "  sun rise --zenith"
	root.Version, root.Short = "v1", "The sun"
	root.AddCommand(NewManCommand())
	dir := filepath.Join(t.TempDir(), "man1")
	if _, err := run(root, "man", dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "sun-rise.1"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `.TH SUN\-RISE 1 "" "sun v1" "Daybreak"
.SH NAME
sun\-rise \- Rise
.SH SYNOPSIS
sun rise [flags]
.SH DESCRIPTION
Rise rises.
.PP
\&.hidden and
\&'quoted' and \e stay
.PP
.nf
  east   \-x
  west
.fi
.SH OPTIONS
.TP
\fB\-\-output\fR FORMAT
in which FORMAT (default table)
.SH WARM OPTIONS
.TP
\fB\-\-zenith\fR 
how high
.SH COLD OPTIONS
.TP
\fB\-\-autumn\fR 
how low
.SH EXAMPLES
.nf
  sun rise \-\-zenith
.fi
.SH SEE ALSO
sun(1)
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	for _, name := range []string{"sun.1", "sun-man.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
