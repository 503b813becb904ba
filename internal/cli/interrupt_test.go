package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// runAsCommand makes the test binary a command that computes for ever.
const runAsCommand = "DAYBREAK_TEST_COMPUTE"

func TestMain(m *testing.M) {
	if os.Getenv(runAsCommand) != "" {
		computeForEver()
	}
	os.Exit(m.Run())
}

// computeForEver runs a command that never looks at its context.
func computeForEver() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := cli.Interruptible(&cobra.Command{RunE: func(*cobra.Command, []string) error {
		fmt.Println("computing")
		for x := uint64(1); ; x = x*6364136223846793005 + 1 {
			if x == 0 {
				return nil
			}
		}
	}})
	cmd.SetArgs(nil)
	err := cmd.ExecuteContext(ctx)
	stop()
	if errors.Is(err, cli.ErrInterrupted) {
		os.Exit(cli.ExitInterrupted)
	}
}

// TestInterruptedCommandsEnd: a command ends within a second of a signal,
// whatever it computes.
func TestInterruptedCommandsEnd(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = []string{runAsCommand + "=1"}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code is checked below
			if code := cmd.ProcessState.ExitCode(); code != cli.ExitInterrupted {
				t.Errorf("exit code %d, want %d", code, cli.ExitInterrupted)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it ended after %v, want a second at most", took)
			}
		})
	}
}

// TestInterruptibleReturnsTheAnswer: without a signal nothing changes, and a
// command that ends well on one, such as a watch, has ended well.
func TestInterruptibleReturnsTheAnswer(t *testing.T) {
	failed := errors.New("failed")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		ctx       context.Context
		err, want error
	}{
		"done":                  {ctx: t.Context()},
		"failed":                {ctx: t.Context(), err: failed, want: failed},
		"a watch that ends":     {ctx: done},
		"answered no":           {ctx: done, err: cli.ErrNo, want: cli.ErrNo},
		"cut off by the signal": {ctx: done, err: context.Canceled, want: cli.ErrInterrupted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := cli.Interruptible(&cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
				if tc.ctx == done {
					<-cmd.Context().Done()
				}
				return tc.err
			}})
			cmd.SetArgs([]string{})
			if err := cmd.ExecuteContext(tc.ctx); !errors.Is(err, tc.want) {
				t.Errorf("err = %v, want %v", err, tc.want)
			}
		})
	}
}
