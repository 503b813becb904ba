package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// maxAnswer bounds one answer of the library's process. 64 cards with 16 slices
// each take a tenth of it.
const maxAnswer = 4 << 20

// helper is a running process of [HelperCommand].
type helper struct {
	client   *rpc.Client
	children *children
	stop     context.CancelFunc
	answer   *bounded
	stderr   *head
	ended    <-chan error
}

func startHelper(c *children, argv []string) (*helper, error) {
	ctx, stop := context.WithCancel(context.Background())
	h := &helper{children: c, stop: stop, stderr: &head{limit: 1024}}
	if err := h.start(ctx, argv); err != nil {
		stop()
		return nil, err
	}
	return h, nil
}

func (h *helper) start(ctx context.Context, argv []string) error {
	cmd, err := h.children.command(ctx, argv)
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = h.stderr
	if h.ended, err = h.children.wait(cmd); err != nil {
		return err
	}
	h.answer = &bounded{Reader: out}
	h.client = jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{h.answer, in})
	return nil
}

// call calls one method. Unless the error is an [rpc.ServerError], the process
// can't be called again.
func (h *helper) call(ctx context.Context, method string, args, reply any) error {
	h.answer.left.Store(maxAnswer)
	call := h.client.Go(HelperService+"."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return fmt.Errorf("the library does not answer, so its process is killed: %w", context.Cause(ctx))
	case <-call.Done:
	}
	for _, closed := range []error{io.ErrUnexpectedEOF, rpc.ErrShutdown, os.ErrClosed, syscall.EPIPE} {
		if errors.Is(call.Error, closed) {
			return h.crashed()
		}
	}
	if call.Error != nil {
		return fmt.Errorf("the library's process: %w", call.Error)
	}
	return nil
}

// crashed returns how the process ended.
func (h *helper) crashed() error {
	select {
	case how := <-h.ended:
		h.ended = nil
		if how == nil {
			how = errors.New("exit status 0")
		}
		return fmt.Errorf("the library ended its process (%w): %s", how, h.stderr)
	case <-time.After(time.Second):
		return errors.New("the library's process closed its output")
	}
}

// end kills the process.
func (h *helper) end() {
	h.stop()
	_ = h.client.Close() // it may be closed already
	if h.ended != nil {
		h.children.abandon(h.ended)
	}
}

// bounded fails when more is read than is left.
type bounded struct {
	io.Reader
	left atomic.Int64
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return n, err
}
