// Package cost bounds what an object that a tenant can create may cost a component:
// memory, allocations, bytes answered, and growth with its size. A table of such
// objects is a test, which checks the bounds, and a benchmark, which also prints the
// time:
//
//	go test -run '^$' -bench Cost -benchtime 1x ./internal/manager
//
// The test checks what the operation allocates, which every machine counts alike. Where
// a loop may run without allocating, the benchmark also bounds its CPU time, as a
// multiple of that of another operation: unless the case names one, that of decoding
// the same object from JSON, which every component does at least once.
package cost

import (
	"encoding/json"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Case is an object that is as large as a tenant can make it, and an operation.
type Case struct {
	// Size is how large the object is, in whatever unit Make takes. The bounds hold at
	// this size; growth is from half of it.
	Size int
	// Make makes the object, and whatever it is put into.
	Make func(tb testing.TB, size int) Work
	Bounds
}

// Work is an operation on an object.
type Work struct {
	// Do does it, any number of times, and returns how many bytes it answers.
	Do func() (answered int)
	// Object is what decoding is compared with.
	Object any
	// Than, if set, is the operation to compare with instead, such as plain
	// kube-scheduler's: then the bounds of memory are for what Do allocates beyond it.
	Than func() int
}

// Bounds are what one operation may cost at most.
type Bounds struct {
	// MiB are allocated in all, which is at least what is in use at once.
	MiB float64
	// Allocs is the number of allocations.
	Allocs uint64
	// Answer is the number of bytes.
	Answer int
	// Times bounds the CPU time in the benchmark, as a multiple of the other operation's;
	// 0 where every step allocates.
	Times float64
}

const (
	// growth is between the 2 of something linear and the 4 of something quadratic.
	growth = 3
	// trifle are bytes whose growth does not matter.
	trifle = 4 << 20
	// instant is what the other operation counts at least: a long text is decoded in no
	// time.
	instant = 10 * time.Millisecond
)

// usage is what one operation cost.
type usage struct {
	bytes, allocs uint64
	answer        int
	cpu           time.Duration
}

// Check tests that the bounds hold.
func Check(t *testing.T, cases map[string]Case) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			c := cases[name]
			_, half, full := c.measure(t)
			if mib := float64(full.bytes) / (1 << 20); mib > c.MiB {
				t.Errorf("%.1f MiB allocated, want at most %g", mib, c.MiB)
			}
			if full.allocs > c.Allocs {
				t.Errorf("%d allocations, want at most %d", full.allocs, c.Allocs)
			}
			if full.answer > c.Answer {
				t.Errorf("%d bytes answered, want at most %d", full.answer, c.Answer)
			}
			if full.bytes > growth*half.bytes+trifle {
				t.Errorf("%d bytes allocated, and %d for half the size: want at most %d times as many", full.bytes, half.bytes, growth)
			}
		})
	}
}

// Bench prints what the cases cost.
func Bench(b *testing.B, cases map[string]Case) {
	b.Helper()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		b.Run(name, func(b *testing.B) {
			c := cases[name]
			work, half, full := c.measure(b)
			for b.Loop() {
				work.Do()
			}
			b.ReportMetric(float64(full.bytes)/(1<<20), "MiB/op")
			b.ReportMetric(float64(full.allocs), "allocs/op")
			b.ReportMetric(float64(full.answer), "answer-B/op")
			b.ReportMetric(float64(full.bytes)/float64(max(half.bytes, 1)), "growth")
			b.ReportMetric(float64(full.cpu)/float64(max(half.cpu, 1)), "cpu-growth")
			times := work.times(b, full.cpu)
			b.ReportMetric(times, "times")
			if c.Times > 0 && times > c.Times {
				b.Errorf("%.1f times the CPU time of the other operation, want at most %g", times, c.Times)
			}
		})
	}
}

// measure does the work at half the size and at all of it.
func (c *Case) measure(tb testing.TB) (work Work, half, full usage) {
	tb.Helper()
	first := c.Make(tb, c.Size/16)
	first.Do() // what is made once, at the first use
	small := c.Make(tb, c.Size/2)
	half, work = small.beyond(), c.Make(tb, c.Size)
	full = work.beyond()
	return work, half, full
}

// beyond measures the work, without what the other operation allocates.
func (w *Work) beyond() usage {
	u := measure(w.Do)
	if w.Than != nil {
		than := measure(w.Than)
		u.bytes -= min(u.bytes, than.bytes)
		u.allocs -= min(u.allocs, than.allocs)
	}
	return u
}

// times returns the CPU time as a multiple of the other operation's.
func (w *Work) times(tb testing.TB, cpu time.Duration) float64 {
	tb.Helper()
	than := w.Than
	if than == nil {
		text, err := json.Marshal(w.Object)
		if err != nil {
			tb.Fatal(err)
		}
		than = func() int {
			if err := json.Unmarshal(text, reflect.New(reflect.TypeOf(w.Object)).Interface()); err != nil {
				tb.Fatal(err)
			}
			return 0
		}
	}
	return float64(cpu) / float64(max(measure(than).cpu, instant))
}

// measure does it once.
func measure(do func() int) (u usage) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := usedCPU()
	u.answer = do()
	u.cpu = usedCPU() - start
	runtime.ReadMemStats(&after)
	u.bytes, u.allocs = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	return u
}

// usedCPU returns the CPU time that this process has used; 0 where it is not known.
func usedCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
