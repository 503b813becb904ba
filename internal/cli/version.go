package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Build is what a binary was made of.
type Build struct {
	Version string `json:"version"`
	// Commit is known where the binary was built by go in a clone.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	// Kubernetes is the version of the libraries that the binary is made with.
	Kubernetes string `json:"kubernetes,omitempty"`
	Platform   string `json:"platform"`
}

// kubernetesModules have the version of Kubernetes; the first that is linked
// counts.
var kubernetesModules = []string{"k8s.io/kubernetes", "k8s.io/client-go"}

// NewBuild returns what this binary was made of. A commit that the build sets
// has precedence over the one that Go records.
func NewBuild(version, commit string) Build {
	b := Build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && b.Commit == "":
			b.Commit = s.Value
		case s.Key == "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, path := range kubernetesModules {
		for _, m := range info.Deps {
			if m.Path == path && b.Kubernetes == "" {
				b.Kubernetes = m.Version
			}
		}
	}
	return b
}

// NewVersionCommand returns the command that prints what the binary of that name
// was made of.
func NewVersionCommand(name string, b Build) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints the version, the commit, and the versions of Go and of the Kubernetes
libraries that the binary was built with.`,
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json", name),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := OneOf("output", output, "table", "json"); err != nil {
				return err
			}
			if output == "json" {
				return WriteJSON(cmd.OutOrStdout(), b)
			}
			return b.WriteTable(cmd.OutOrStdout(), name)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "output `FORMAT`: table or json")
	Words(cmd, "output", "table", "json")
	return cmd
}

// WriteJSON writes a document for scripts, with its characters as they are.
func WriteJSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(document)
}

// WriteTable writes what the binary of that name was made of.
func (b Build) WriteTable(w io.Writer, name string) error {
	return WriteRows(w, name+" "+b.Version, []Row{{"commit", b.commit()}, {"go", b.Go}, {"kubernetes", b.Kubernetes}, {"platform", b.Platform}})
}

// Row is a row of a table of versions.
type Row struct{ Name, Value string }

// WriteRows writes a title and rows, empty ones left out.
func WriteRows(w io.Writer, title string, rows []Row) error {
	_, err := fmt.Fprintln(w, title)
	for _, row := range rows {
		if row.Value != "" && err == nil {
			_, err = fmt.Fprintf(w, "  %-11s %s\n", row.Name, row.Value)
		}
	}
	return err
}

func (b Build) commit() string {
	if b.Modified {
		return b.Commit + " (modified)"
	}
	return b.Commit
}
