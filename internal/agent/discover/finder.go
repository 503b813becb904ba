package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Names of the sources, as they are written in a configuration.
const (
	SourceMXSML     = "mxsml"
	SourceMXSMI     = "mx-smi"
	SourceSysfs     = "sysfs"
	SourceSimulated = "simulated"
)

// DefaultSources is what a machine with cards is looked at with.
func DefaultSources() []string { return []string{SourceMXSML, SourceMXSMI, SourceSysfs} }

// Config is how to look at a machine. The zero Config is right for a server
// with the vendor's driver installed.
type Config struct {
	// Sources to use, by name and in order; [DefaultSources] if empty.
	Sources []string
	// Library is the path of libmxsml.so; empty: where the vendor puts it.
	Library string
	// Command is the path of mx-smi; empty: where the vendor puts it.
	Command string
	// Sys is where sysfs is mounted; empty: /sys.
	Sys string
	// Profile is a built-in profile's name or a file, for the simulation, and
	// Node the name of the node that is simulated.
	Profile, Node string
}

// New returns what looks at the machine in the configured way.
func New(cfg Config) (*Finder, error) {
	names := cfg.Sources
	if len(names) == 0 {
		names = DefaultSources()
	}
	var sources []Source
	for _, name := range names {
		source, err := cfg.source(name)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	return NewFinder(sources...), nil
}

func (cfg *Config) source(name string) (Source, error) {
	switch name {
	case SourceMXSML:
		return NewLibrary(*cfg)
	case SourceMXSMI:
		return NewMXSMI(cfg.Command), nil
	case SourceSysfs:
		return NewSysfs(cmp.Or(cfg.Sys, "/sys")), nil
	case SourceSimulated:
		return NewSimulated(cfg.Profile, cfg.Node)
	default:
		return nil, fmt.Errorf("source %q: write %s, %s, %s or %s", name, SourceMXSML, SourceMXSMI, SourceSysfs, SourceSimulated)
	}
}

// Finder joins several sources into one.
//
// The first source that works decides which cards there are; sysfs, wherever it
// is in the list, adds what the kernel knows of each. The chosen source is kept
// until a restart: when it fails, the look fails, and no other source, whose
// answer may differ in words or in time, takes its place.
//
// One look is made at a time, by the caller.
type Finder struct {
	identity []Source
	pci      Source
	chosen   Source
	// noLibrary is why the chosen source does without the vendor's library, which alone
	// makes slices; empty if it is the library. failed is the library if it is there and
	// has not worked yet: it is asked again, for slices only.
	noLibrary string
	failed    Source
}

// NewFinder joins sources, in order of preference.
func NewFinder(sources ...Source) *Finder {
	f := &Finder{}
	for _, s := range sources {
		if s.Name() == SourceSysfs {
			f.pci = s
		} else {
			f.identity = append(f.identity, s)
		}
	}
	return f
}

// Name implements [Source]. Each Snapshot names the source that was chosen.
func (f *Finder) Name() string { return "discovery" }

// Close ends what the sources keep running.
func (f *Finder) Close() {
	for _, s := range f.identity {
		if c, ok := s.(interface{ Close() }); ok {
			c.Close()
		}
	}
}

// Look implements [Source].
func (f *Finder) Look(ctx context.Context) (*Snapshot, error) {
	var pci *Snapshot
	if f.pci != nil {
		var err error
		if pci, err = f.pci.Look(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", f.pci.Name(), err)
		}
	}
	if f.chosen != nil {
		f.retry(ctx, pci)
		out, err := f.from(ctx, f.chosen, pci)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.chosen.Name(), err)
		}
		return out, nil
	}
	return f.choose(ctx, pci)
}

// choose asks the sources in order and stays with the first that works.
func (f *Finder) choose(ctx context.Context, pci *Snapshot) (*Snapshot, error) {
	var failures []error
	installed := false
	f.failed = nil
	for i, source := range f.identity {
		f.noLibrary = withoutLibrary(source, failures)
		ours, cancel := share(ctx, len(f.identity)-i)
		out, err := f.from(ours, source, pci)
		cancel()
		if err == nil {
			f.chosen = source
			klog.FromContext(ctx).Info("Chose a source of cards", "source", out.Source, "cards", len(out.Cards))
			return out, nil
		}
		if !errors.Is(err, ErrNotInstalled) {
			installed = true
			if source.Name() == SourceMXSML {
				f.failed = source
			}
		}
		failures = append(failures, fmt.Errorf("%s: %w", source.Name(), err))
	}
	switch {
	case pci != nil && len(pci.Cards) == 0 && !installed:
		return pci, nil // neither cards nor the vendor's software: a machine without
	case pci != nil && len(pci.Cards) > 0:
		failures = append([]error{fmt.Errorf("%d MetaX cards are on the PCI bus, but no source reports their uuids", len(pci.Cards))}, failures...)
	case len(f.identity) == 0:
		failures = append(failures, errors.New("no source is configured that lists cards"))
	}
	return nil, errors.Join(failures...)
}

// retry asks the library again that has failed so far. It has a back-off of its own after
// crashes and hangs.
func (f *Finder) retry(ctx context.Context, pci *Snapshot) {
	if f.failed == nil {
		return
	}
	ours, cancel := share(ctx, 2)
	defer cancel()
	if out, err := f.from(ours, f.failed, pci); err == nil {
		f.noLibrary, f.failed = out.NoSlices, nil
	}
}

// withoutLibrary returns why a source that was chosen after these failures does without
// the vendor's library.
func withoutLibrary(source Source, failures []error) string {
	const needed = "slices are made through the vendor's library libmxsml.so"
	missing := errors.Join(failures...)
	switch {
	case source.Name() != SourceMXSMI:
		return ""
	case missing == nil:
		return needed + ", which is not among the sources"
	}
	return fmt.Sprintf("%s: %v", needed, missing)
}

// from looks at the cards with one source and completes the picture.
func (f *Finder) from(ctx context.Context, source Source, pci *Snapshot) (*Snapshot, error) {
	out, err := source.Look(ctx)
	if err != nil {
		return nil, err
	}
	if pci != nil && len(out.Cards) == 0 && len(pci.Cards) > 0 {
		refresh(source)
		return nil, fmt.Errorf("it lists no card, but %d are on the PCI bus", len(pci.Cards))
	}
	if err := out.check(); err != nil {
		return nil, err
	}
	if pci != nil && !complete(out, pci) {
		refresh(source)
	}
	if f.failed != nil {
		out.LibraryFailed = f.noLibrary
	} else {
		out.NoSlices = cmp.Or(out.NoSlices, f.noLibrary)
	}
	if err := out.check(); err != nil {
		return nil, err
	}
	return out, nil
}

// refresh asks a source to count the cards again, if it can. It does so now and then
// for as long as it is asked.
func refresh(source Source) {
	if r, ok := source.(interface{ Refresh() }); ok {
		r.Refresh()
	}
}

// share gives the first of n sources its part of the time that is left, so
// that one that hangs leaves some to the others.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || n < 2 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(n))
}
