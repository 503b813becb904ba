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
			return serve(cmd.Context(), os.Stdin, out, &service{path: path})
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
func serve(ctx context.Context, in io.Reader, out io.WriteCloser, s *service) error {
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

// service has the methods that the agent calls. It loads the library at the
// first call that finds one.
type service struct {
	path    string
	session *session
}

func answer[A, R any](s *service, do func(*session, A) (*R, error), args A, out *R) error {
	if s.session == nil {
		l, err := load(s.path)
		if err != nil {
			return err
		}
		s.session = newSession(l)
	}
	result, err := do(s.session, args)
	if err == nil {
		*out = *result
	}
	return err
}

func (s *service) Look(refresh bool, out *discover.Snapshot) error {
	return answer(s, (*session).look, refresh, out)
}

func (s *service) Functions(args struct{}, out *discover.Functions) error {
	return answer(s, (*session).functions, args, out)
}

func (s *service) Slices(card discover.SliceRef, out *discover.CardSlices) error {
	return answer(s, (*session).cardSlices, card, out)
}

func (s *service) Create(order discover.SliceOrder, out *discover.Slice) error {
	return answer(s, (*session).createSlice, order, out)
}

func (s *service) Change(change discover.SliceChange, out *discover.Slice) error {
	return answer(s, (*session).changeSlice, change, out)
}

func (s *service) Remove(slice discover.SliceRef, out *struct{}) error {
	return answer(s, func(s *session, slice discover.SliceRef) (*struct{}, error) { return &struct{}{}, s.removeSlice(slice) }, slice, out)
}
