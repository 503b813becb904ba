package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// versionTimeout bounds how long the version command waits for a cluster.
const versionTimeout = 5 * time.Second

// versionOptions are the flags of the version command.
type versionOptions struct {
	format
	access cluster.Access
	client bool
	build  cli.Build
}

// NewVersionCommand returns the command that prints the versions of this binary and
// of the cluster.
func NewVersionCommand(b cli.Build) *cobra.Command {
	o := versionOptions{build: b}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this binary and of the cluster",
		Long: `Version prints the version of this binary, its commit, and the versions of Go and of
the Kubernetes libraries that it was built with.

If a cluster is configured, it also prints the version of its API server and the
versions of Daybreak's scheduler, manager and agents, from the images of their pods.
Listing pods in all namespaces is required for that. If the cluster does not answer
within five seconds, a note reports the error and the exit code is 0.

Exit codes: 0 success; 2 invalid flags or an unreadable kubeconfig.`,
		Example: `  # This binary and the cluster of the current context
  daybreak version

  # This binary only
  daybreak version --client

  # For scripts
  daybreak version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&o.client, "client", false, "print the version of this binary only")
	registerAccess(cmd, &o.access)
	o.registerOutput(cmd, "table", "json")
	return cmd
}

func (o *versionOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if _, err := o.check(stdout, "table", "json"); err != nil {
		return err
	}
	server, err := o.server(ctx, stderr)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return cli.WriteJSON(stdout, struct {
			cli.Build
			Server *serverVersions `json:"server,omitempty"`
		}{o.build, server})
	}
	if err := o.build.WriteTable(stdout, "daybreak"); err != nil || server == nil {
		return err
	}
	return cli.WriteRows(stdout, "\nserver "+server.Address, server.rows())
}

// serverVersions are the versions of a cluster.
type serverVersions struct {
	Address string `json:"address"`
	cluster.Versions
}

// server returns the versions of the cluster, or nothing if there is none or it
// does not answer.
func (o *versionOptions) server(ctx context.Context, stderr io.Writer) (*serverVersions, error) {
	if o.client {
		return nil, nil
	}
	config, err := o.access.Config()
	switch {
	case errors.Is(err, cluster.ErrNoCluster):
		return nil, nil
	case err != nil:
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, fmt.Errorf("no answer within %s", versionTimeout))
	defer cancel()
	var versions *cluster.Versions
	client, err := cluster.NewClient(config)
	if err == nil {
		versions, err = client.ReadVersions(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		fmt.Fprintf(stderr, "note: server %s: %v; to leave it out, add --client\n", config.Host, err)
	}
	if versions == nil {
		return nil, nil
	}
	return &serverVersions{config.Host, *versions}, nil
}

// rows has a row for each component.
func (s *serverVersions) rows() []cli.Row {
	rows := []cli.Row{{Name: "kubernetes", Value: s.Kubernetes}}
	for _, c := range s.Components {
		text := c.Version + " (" + view.Count(c.Pods, "pod") + ")"
		if last := &rows[len(rows)-1]; last.Name == c.Name {
			last.Value += ", " + text
		} else {
			rows = append(rows, cli.Row{Name: c.Name, Value: text})
		}
	}
	if s.Components != nil && len(s.Components) == 0 {
		rows = append(rows, cli.Row{Name: "daybreak", Value: "no pods with the label " + strings.ReplaceAll(wire.ComponentSelector, "=", ": ")})
	}
	return rows
}
