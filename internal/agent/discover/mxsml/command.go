package mxsml

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// NewCommand returns the hidden command under which the agent runs the library
// in a process of its own. It answers requests from standard input until that
// ends.
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
			return serve(cmd.Context(), os.Stdin, out, &operator{path: path})
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

// serve answers requests, one JSON document a line each way, in order. It
// returns when the input or ctx ends, even while the library does not.
func serve(ctx context.Context, in io.Reader, out io.Writer, o *operator) error {
	requests := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		// The library is always called from the same thread.
		runtime.LockOSThread()
		encoder := json.NewEncoder(out)
		for line := range requests {
			if err := encoder.Encode(o.answer(line)); err != nil {
				failed <- fmt.Errorf("answer the agent: %w", err)
				return
			}
		}
	}()
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, discover.MaxHelperLine)
		for scanner.Scan() {
			lines <- append([]byte(nil), scanner.Bytes()...)
		}
		ended <- scanner.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case err := <-failed:
			return err
		case line := <-lines:
			select {
			case requests <- line:
			case err := <-ended: // the agent is gone, and the library busy
				return err
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// operator carries out the operations that the agent asks for.
type operator struct {
	path    string
	session *session
}

func (o *operator) answer(line []byte) discover.HelperReply {
	var request discover.HelperRequest
	if err := json.Unmarshal(line, &request); err != nil {
		return discover.HelperReply{Error: fmt.Sprintf("request: %v", err)}
	}
	reply := discover.HelperReply{ID: request.ID}
	result, err := o.do(request)
	if err == nil {
		reply.Result, err = json.Marshal(result)
	}
	if err != nil {
		reply.Error = err.Error()
		reply.NotInstalled = errors.Is(err, discover.ErrNotInstalled)
		reply.Busy, reply.Gone = errors.Is(err, discover.ErrBusy), errors.Is(err, discover.ErrNoSlice)
	}
	return reply
}

func (o *operator) do(request discover.HelperRequest) (any, error) {
	if o.session == nil {
		l, err := load(o.path)
		if err != nil {
			return nil, err
		}
		o.session = newSession(l)
	}
	switch s := o.session; request.Op {
	case discover.OpLook:
		return with(request, func(options discover.LookOptions) (*discover.Snapshot, error) { return s.look(options.Refresh) })
	case discover.OpFunctions:
		return discover.Functions{Library: s.lib.path, Missing: s.lib.missing}, nil
	case discover.OpSlices:
		return with(request, s.cardSlices)
	case discover.OpCreateSlice:
		return with(request, s.createSlice)
	case discover.OpChangeSlice:
		return with(request, s.changeSlice)
	case discover.OpRemoveSlice:
		return with(request, func(ref discover.SliceRef) (*struct{}, error) { return &struct{}{}, s.removeSlice(ref) })
	default:
		return nil, fmt.Errorf("no operation %q", request.Op)
	}
}

// with reads the parameters of a request and does what it asks for.
func with[P, R any](request discover.HelperRequest, do func(P) (R, error)) (any, error) {
	var params P
	if err := json.Unmarshal(request.Params, &params); err != nil {
		return nil, fmt.Errorf("params of %s: %w", request.Op, err)
	}
	return do(params)
}
