package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// runAs makes the test binary another program: one of programs.
const runAs = "DAYBREAK_TEST_PROGRAM"

var programs = map[string]func(){"computes": computeForEver, "drains": drainForEver}

func TestMain(m *testing.M) {
	if program := programs[os.Getenv(runAs)]; program != nil {
		program()
	}
	os.Exit(m.Run())
}

// program is one of programs, started.
type program struct {
	*exec.Cmd
	out *bufio.Reader
}

// start starts one of programs, and waits for its first line.
func start(t *testing.T, name string) program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{runAs + "=" + name}
	out, err := cmd.StdoutPipe()
	gputest.Must(t, err)
	gputest.Must(t, cmd.Start())
	p := program{cmd, bufio.NewReader(out)}
	p.line(t)
	return p
}

// line waits for the next line.
func (p program) line(t *testing.T) {
	t.Helper()
	_, err := p.out.ReadString('\n')
	gputest.Must(t, err)
}

func (p program) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	gputest.Must(t, p.Process.Signal(sig))
}

// wantInterrupted waits for the end.
func (p program) wantInterrupted(t *testing.T) {
	t.Helper()
	_ = p.Wait() // the exit code is checked below
	gputest.Equal(t, "exit code", cli.ExitInterrupted, p.ProcessState.ExitCode())
}

// drainForEver does not end by itself after a signal.
func drainForEver() {
	ctx := cli.UntilSignal(os.Exit)
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("draining")
	time.Sleep(20 * time.Second)
	os.Exit(0)
}

// TestSecondSignal: a second signal ends the process, also one that comes
// immediately after the first was noticed.
func TestSecondSignal(t *testing.T) {
	for range 40 {
		p := start(t, "drains")
		p.signal(t, os.Interrupt)
		p.line(t)
		p.signal(t, syscall.SIGTERM)
		p.wantInterrupted(t)
		if t.Failed() {
			return
		}
	}
}

// computeForEver runs a command that never looks at its context.
func computeForEver() {
	ctx := cli.UntilSignal(os.Exit)
	cmd := cli.Interruptible(&cobra.Command{RunE: func(*cobra.Command, []string) error {
		fmt.Println("computing")
		for x := uint64(1); ; x = x*6364136223846793005 + 1 {
			if x == 0 {
				return nil
			}
		}
	}})
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(ctx); errors.Is(err, cli.ErrInterrupted) {
		os.Exit(cli.ExitInterrupted)
	}
}

// TestInterruptedCommandsEnd: a command ends within a second of a signal,
// whatever it computes.
func TestInterruptedCommandsEnd(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p := start(t, "computes")
			signalled := time.Now()
			p.signal(t, sig)
			p.wantInterrupted(t)
			if took := time.Since(signalled); took > time.Second {
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
