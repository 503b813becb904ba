package scheduler

import "testing"

// TestKnownHistories plays histories that went wrong once, as they were shrunk.
func TestKnownHistories(t *testing.T) {
	prepareHistories(t)
	for name, in := range map[string]outcome{
		"the touch of an earlier leader arrives late": {slots: 2, steps: []step{
			{op: "node", who: "n0", n: 3}, {op: "pod", who: "p2", what: "two"}, {op: "start", who: "s0"}, {op: "start", who: "s1"},
			{op: "ok", who: "s0.1/list/pods/1"}, {op: "release", who: "s0"}, {op: "wait", n: 3000}, {op: "flow", who: "s1", what: holdBindings},
			{op: "late", who: "s0.1/touch/p2/1"},
		}},
		"a victim's Binding fails while the victim is evicted": {slots: 2, steps: []step{
			{op: "node", who: "n0", n: 1}, {op: "pod", who: "p4", what: "large", n: 10}, {op: "start", who: "s0"}, {op: "flow", who: "s0"},
			{op: "wait", n: 1000}, {op: "delete", who: "p4"}, {op: "pod", who: "p5", what: "small", n: 10}, {op: "watch", who: "s0", what: kindPod, n: 100},
			{op: "hear", who: "s0", what: kindPod}, {op: "hear", who: "s0", what: kindPod}, {op: "cycle", who: "s0"},
			{op: "annotate", who: "p5", what: "binpack"}, {op: "pod", who: "p3", what: "one", n: 20},
		}},
		"the room of a nominated pod is taken by a more important one": {slots: 2, steps: []step{
			{op: "node", who: "n0", n: 2}, {op: "pod", who: "p3", what: "one"}, {op: "start", who: "s0"}, {op: "delete", who: "p3"},
			{op: "flow", who: "s0", what: holdBindings}, {op: "pod", who: "p5", what: "large"}, {op: "wait", n: 1000}, {op: "flow", who: "s0"},
			{op: "pod", who: "p3", what: "two", n: 10}, {op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"},
			{op: "pod", who: "p2", what: "large"}, {op: "pod", who: "p0", what: "small", n: 20},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			out := replay(t, in)
			if got, want := len(out.steps), len(in.steps)+1; got != want {
				t.Errorf("%d steps could be done, want %d: the history is another one now", got, want)
			}
			logHistory(t, 0, out)
		})
	}
}
