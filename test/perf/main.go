package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errMissed):
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(2)
	}
}

// errMissed reports that something was slower than the plan allows.
var errMissed = errors.New("some bounds do not hold")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("perf", flag.ContinueOnError)
	flags.SetOutput(stderr)
	planFile := flags.String("plan", "test/perf/bench.yaml", "what to measure")
	out := flags.String("out", "bench.json", "file to write the results to")
	executable := flags.String("playground", "bin/playground", "binary that has the parts of a cluster in it")
	kubernetes := flags.String("kubernetes", "", "folder with kube-apiserver, kube-controller-manager and kube-scheduler of another version")
	peers := flags.String("peers", "bin/compat", "folder with the binaries of the plan's peers")
	old := flags.String("old", "", "an earlier bin/playground, whose Daybreak takes turns with the others")
	only := flags.String("run", "", "regular expression: measure only what matches, written NODES/WORKLOAD")
	rounds := flags.Int("rounds", 0, "rounds of each measurement, in place of the plan's")
	profiles := flags.String("profiles", "", "folder for CPU and heap profiles of the schedulers; taking them slows them down")
	show := flags.String("show", "", "print the results in a file as tables in Markdown, and measure nothing")
	add := flags.Bool("add", false, "keep what the file of -out has and was not measured again, so that a plan can be carried out in parts with -run")
	enforce := flags.Bool("enforce", false, "end with 1 when a bound of the plan does not hold")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: there are only flags", flags.Arg(0))
	}
	if *show != "" {
		return showMarkdown(*show, stdout)
	}
	filter, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	plan, err := loadPlan(*planFile)
	if err != nil {
		return err
	}
	if *rounds > 0 {
		plan.Rounds = *rounds
	}
	if err := plan.keep(filter); err != nil {
		return err
	}
	earlier, err := earlierResult(*add, *out)
	if err != nil {
		return err
	}
	b := &bench{plan: plan, executable: *executable, kubernetes: *kubernetes, peers: *peers, old: *old, profiles: *profiles, log: stderr, begin: time.Now()}
	result, err := b.run(ctx)
	if result != nil {
		result.keep(earlier)
		result.judge(plan)
		if saveErr := result.save(*out); saveErr != nil {
			return saveErr
		}
		err = errors.Join(err, result.print(stdout))
	}
	if err != nil {
		return err
	}
	if *enforce && result.missed() {
		return errMissed
	}
	return nil
}

// earlierResult returns what the file has, if it is to be added to.
func earlierResult(add bool, file string) (*Result, error) {
	if !add {
		return &Result{}, nil
	}
	r, err := loadResult(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("-add: %w", err)
	}
	return r, nil
}
