package scheduler

import "testing"

// TestKnownHistories plays histories that went wrong once, as they were shrunk.
func TestKnownHistories(t *testing.T) {
	profiles := prepareHistories(t)
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
		"a pod is bound between the snapshot and the refusal of one that waits for it": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 1}, {op: "pod", who: "p2", what: "one,near"}, {op: "start", who: "s0"}, {op: "flow", who: "s0", what: holdBindings},
			{op: "wait", n: 1000}, {op: "cycle", who: "s0", what: pauseBefore}, {op: "intrude", who: "g0", what: "bare,of"},
			{op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"},
		}},
		"a pod loses, until it is bound, the label that another one was refused for": {slots: 3, steps: []step{
			{op: "node", who: "n0", what: "small", n: 2}, {op: "start", who: "s2"}, {op: "pod", who: "p4", what: "half,near"}, {op: "relabel", who: "p4"},
			{op: "flow", who: "s2"}, {op: "wait", n: 200}, {op: "cycle", who: "s2"}, {op: "pod", who: "p5", what: "one,away"}, {op: "relabel", who: "p4"},
		}},
		"a deadline takes a pod out of the scope of its quota": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 3}, {op: "quota", who: "service", n: 30}, {op: "pod", who: "p2", what: "half"}, {op: "start", who: "s0"},
			{op: "peace"}, {op: "deadline", who: "p2"},
		}},
		"the node with the largest cards leaves": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 1}, {op: "node", who: "n1", what: "small", n: 1}, {op: "quota", who: "memory", n: 48}, {op: "pod", who: "p2", what: "one"},
			{op: "start", who: "s0"}, {op: "peace"}, {op: "leave", who: "n0"},
		}},
		"the node with the largest cards is cordoned": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 1}, {op: "node", who: "n1", what: "small", n: 1}, {op: "quota", who: "memory", n: 48}, {op: "pod", who: "p2", what: "one"},
			{op: "start", who: "s0"}, {op: "peace"}, {op: "cordon", who: "n0"},
		}},
		"a pod without cards is the last of several victims": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 2}, {op: "node", who: "n1", n: 1}, {op: "pod", who: "p5", what: "half", n: 20}, {op: "pod", who: "p1", what: "one", n: 20},
			{op: "start", who: "s0"}, {op: "pod", who: "p4", what: "large", n: 10}, {op: "intrude", who: "g1", what: "bare,of"}, {op: "flow", who: "s0", what: holdEvents},
			{op: "intrude", who: "g3", what: "one,of"}, {op: "pod", who: "p0", what: "half,even", n: 10}, {op: "intrude", who: "g5", what: "one,of"}, {op: "wait", n: 1000},
			{op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"}, {op: "cycle", who: "s0"}, {op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"},
			{op: "wait", n: 3000}, {op: "remove", who: "g3"}, {op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"}, {op: "flow", who: "s0", what: holdEvents}, {op: "cycle", who: "s0"},
		}},
		"a preemptor takes other cards than those that were kept for it": {slots: 1, steps: []step{
			{op: "node", who: "n0", n: 2}, {op: "pod", who: "p2", what: "large"}, {op: "pod", who: "p1", what: "small", n: 20}, {op: "pod", who: "p5", what: "half", n: 20},
			{op: "pod", who: "p4", what: "one"}, {op: "peace"}, {op: "wait", n: 1000}, {op: "pod", who: "p0", what: "half", n: 20},
			{op: "flow", who: "s0", what: holdBindings}, {op: "cycle", who: "s0"}, {op: "delete", who: "p1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in.profiles = profiles
			out := replay(t, in)
			if got, want := len(out.steps), len(in.steps)+1; got != want {
				t.Errorf("%d steps could be done, want %d: the history is another one now", got, want)
			}
			logHistory(t, 0, out)
		})
	}
}
