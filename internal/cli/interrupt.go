package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// ErrInterrupted is returned by a command that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// ExitInterrupted is the exit code of such a command: the shell's for SIGINT.
const ExitInterrupted = 130

// interruptGrace is how long a command may go on after a signal, to put the
// terminal back or to print what it has.
const interruptGrace = 300 * time.Millisecond

// Interruptible makes a command that answers and ends return [ErrInterrupted]
// soon after its context is done, whatever it computes or reads. Its work goes
// on until the process exits. It is not for parts that drain.
func Interruptible(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, ended := cmd.Context(), make(chan error, 1)
		go func() { ended <- run(cmd, args) }()
		var err error
		select {
		case err = <-ended:
		case <-ctx.Done():
			select {
			case err = <-ended:
			case <-time.After(interruptGrace):
				err = ErrInterrupted
			}
		}
		if err != nil && !errors.Is(err, ErrNo) && ctx.Err() != nil {
			return ErrInterrupted
		}
		return err // also of a watch that the signal ended, and of an answer that came before it
	}
	return cmd
}

// UntilSignal returns a context that the first Ctrl-C or SIGTERM ends. A second
// one calls exit immediately, however soon it comes.
func UntilSignal(exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		exit(ExitInterrupted)
	}()
	return ctx
}
