// Package compat tests Daybreak on other versions of Kubernetes: a real API server,
// controller manager and scheduler of each version, and the chart as Helm installs it
// there (test/deployed). On each, the examples of both dialects are placed, forged
// writes are rejected, leaders are killed, and the audit finds nothing.
//
// `make compat` builds the servers and runs it.
package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

const (
	// envBin names the folder with the binaries of the tree, whose subfolder compat
	// has a folder with the binaries of each server.
	envBin = "COMPAT_BIN"
	// envServers lists the servers, such as "1.28 1.30". ownServer is the tree's.
	envServers = "COMPAT_SERVERS"
	ownServer  = "own"
	chart      = "../../charts/daybreak"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "make compat builds servers of other versions and tests with them", envBin, envServers))
}

// bin returns the path of a binary of the tree.
func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// result is a line of the report.
type result struct {
	server           string
	placed, rejected int
	// scheduler and manager are how long pods waited after their leader was killed.
	scheduler, manager time.Duration
	audit              string
	took               time.Duration
}

// TestServers runs the suite on each server, and reports in a table.
func TestServers(t *testing.T) {
	var results []*result
	for server := range strings.FieldsSeq(os.Getenv(envServers)) {
		t.Run(server, func(t *testing.T) {
			start, r := time.Now(), &result{server: server, audit: "not reached"}
			results = append(results, r)
			defer func() { r.took = time.Since(start) }()
			newSuite(t, server, r).run()
		})
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tPLACED\tREJECTED\tSCHEDULER KILLED\tMANAGER KILLED\tAUDIT\tTOOK")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", r.server, r.placed, r.rejected,
			r.scheduler.Round(100*time.Millisecond), r.manager.Round(100*time.Millisecond), r.audit, r.took.Round(time.Second))
	}
	gputest.Must(t, table.Flush())
	t.Logf("pods placed, forged writes rejected, and time until pods run again after a leader was killed:\n%s", text.String())
}
