package churn

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Options says what to study. Every rule is run with every shape, mix, load and
// seed.
type Options struct {
	// Rules, Shapes and Mixes are names from the lists of the same name.
	Rules  []string
	Shapes []string
	Mixes  []string
	// Loads are the mean cards asked for at a time, as parts of all cards, above
	// 0 and below 1.
	Loads []float64
	// Servers is the number of servers, with eight cards each.
	Servers int
	// Jobs is the number of arrivals in a run; the first tenth is not measured.
	Jobs int
	// Backfill is how many waiting jobs are tried when cards come free; 1 lets
	// nobody overtake.
	Backfill int
	// Seed is the first of Seeds seeds.
	Seed  uint64
	Seeds int
	// RandomTies breaks ties that the rules of others leave between servers at
	// random, as kube-scheduler does; otherwise the first server wins, which is
	// kinder to them. Ours leaves none.
	RandomTies bool
	// Workers is the number of runs at a time; 0 means one per processor.
	Workers int
}

// Defaults returns the options of the study in the documentation.
func Defaults() Options {
	return Options{
		Rules: Rules(), Shapes: []string{"2x4"}, Mixes: []string{"mixed", "training", "inference"},
		Loads: []float64{0.7, 0.85, 0.95}, Servers: 32, Jobs: 20_000, Backfill: 64, Seed: 1, Seeds: 5,
	}
}

// Bounds of the options: beyond them a study takes days or says nothing.
const (
	maxServers = 10_000
	minJobs    = 100
	maxJobs    = 10_000_000
	maxSeeds   = 1000
)

// Validate returns what is wrong with the options, all of it at once, or nil.
func (o *Options) Validate() error {
	_, err := o.scenarios()
	return err
}

// scenarios lists the runs to be made, rules innermost, so that runs to be
// compared are made at about the same time.
func (o *Options) scenarios() ([]scenario, error) {
	var errs problems
	defs := resolve(&errs, "policy", o.Rules, rules, func(d ruleDef) string { return d.name })
	shapes := resolve(&errs, "zones", o.Shapes, Shapes(), func(s Shape) string { return s.Name })
	mixes := resolve(&errs, "mix", o.Mixes, Mixes(), func(m Mix) string { return m.Name })
	errs.check(len(o.Loads) > 0, "no load given: write at least one, for example 0.85")
	for i, load := range o.Loads {
		errs.check(!slices.Contains(o.Loads[:i], load), "load %g is given twice", load)
		errs.check(load > 0 && load < 1, "load %g: write a number above 0 and below 1; at 1 the queue grows for ever", load)
	}
	errs.check(o.Servers >= 1 && o.Servers <= maxServers, "%d servers: write 1 to %d", o.Servers, maxServers)
	errs.check(o.Jobs >= minJobs && o.Jobs <= maxJobs, "%d jobs: write %d to %d", o.Jobs, minJobs, maxJobs)
	errs.check(o.Backfill >= 1, "a backfill of %d lets nobody start: write 1 or more", o.Backfill)
	errs.check(o.Seeds >= 1 && o.Seeds <= maxSeeds, "%d seeds: write 1 to %d", o.Seeds, maxSeeds)
	errs.check(o.Workers >= 0, "%d workers: write 0 for one per processor, or more", o.Workers)
	if err := errs.join(); err != nil {
		return nil, err
	}
	var all []scenario
	for _, shape := range shapes {
		for _, mix := range mixes {
			for _, load := range o.Loads {
				for s := range o.Seeds {
					for _, def := range defs {
						all = append(all, scenario{rule: def, shape: shape, mix: mix, load: load, seed: o.Seed + uint64(s)})
					}
				}
			}
		}
	}
	return all, nil
}

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// problems collects what is wrong with options.
type problems []error

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p *problems) join() error {
	if len(*p) == 0 {
		return nil
	}
	return fmt.Errorf("churn: %w", errors.Join(*p...))
}

// resolve finds the named entries of a list.
func resolve[T any](errs *problems, what string, names []string, list []T, nameOf func(T) string) []T {
	known := make([]string, len(list))
	for i, entry := range list {
		known[i] = nameOf(entry)
	}
	choice := strings.Join(known, ", ")
	errs.check(len(names) > 0, "no %s given: write at least one of %s", what, choice)
	var found []T
	seen := map[string]bool{}
	for _, name := range names {
		errs.check(!seen[name], "%s %q is given twice", what, name)
		seen[name] = true
		at := -1
		for i := range known {
			if known[i] == name {
				at = i
			}
		}
		if at < 0 {
			errs.check(false, "unknown %s %q: write one of %s", what, name, choice)
			continue
		}
		found = append(found, list[at])
	}
	return found
}
