package mxsml

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// NewCommand returns the hidden command under which the agent runs the library
// in a process of its own. It answers calls from standard input until that ends.
func NewCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:           discover.HelperCommand,
		Short:         "Ask the vendor's library for the agent that started this process",
		Hidden:        true,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := takeStdout()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), os.Stdin, out, newSession(path))
		},
	}
	cmd.Flags().StringVar(&path, "library", "", "path of libmxsml.so (default: where the vendor's packages put it)")
	return cmd
}

// takeStdout keeps standard output for the answers: what the library prints
// goes to standard error instead.
func takeStdout() (*os.File, error) {
	fd, err := syscall.Dup(int(os.Stdout.Fd()))
	if err != nil {
		return nil, fmt.Errorf("duplicate standard output: %w", err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.Dup3(int(os.Stderr.Fd()), int(os.Stdout.Fd()), 0); err != nil {
		return nil, fmt.Errorf("redirect standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), "answers"), nil
}

// serve answers calls one at a time. It returns when the input or ctx ends, even
// while a call of the library does not.
func serve(ctx context.Context, in io.Reader, out io.WriteCloser, s *session) error {
	server := rpc.NewServer()
	if err := server.RegisterName(discover.HelperService, s); err != nil {
		return err
	}
	ended := make(chan error, 2)
	calls, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		ended <- err
	}()
	go func() {
		// The library is always called from the same thread.
		runtime.LockOSThread()
		codec := jsonrpc.NewServerCodec(struct {
			io.Reader
			io.WriteCloser
		}{calls, out})
		for {
			if err := server.ServeRequest(codec); err != nil {
				ended <- fmt.Errorf("read a call: %w", err)
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}
