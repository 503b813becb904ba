package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	qos     = wire.AnnotationQoS
	class   = wire.AnnotationClass
	decided = wire.AnnotationPredicateTime
)

// planted are states that break one rule each. Every case starts from two nodes
// of four cards, n1 and n2, and what it wants is all there is to find.
var planted = map[string]struct {
	plant func(w *world)
	rule  Rule
	node  string
	card  string
	pods  []string
	// message is what must stand in the message, numbers above all.
	message []string
}{
	"more memory than the card has": {
		plant: func(w *world) {
			w.slice("n1", "a", 0, 10, 40)
			w.slice("n1", "b", 0, 10, 32)
			w.slice("n1", "c", 1, 10, 64)
		},
		rule: MemoryOverbooked, node: "n1", card: "GPU-n1-0", pods: []string{"default/a", "default/b"},
		message: []string{"72 GiB", "64 GiB", "default/a 40 GiB", "default/b 32 GiB", "card 0 of n1"},
	},
	"more compute than the card has": {
		plant: func(w *world) {
			w.slice("n1", "a", 2, 60, 4)
			w.slice("n1", "b", 2, 41, 4)
			w.slice("n1", "c", 3, 99, 4)
		},
		rule: ComputeOverbooked, node: "n1", card: "GPU-n1-2", pods: []string{"default/a", "default/b"},
		message: []string{"101%", "default/a 60%", "default/b 41%"},
	},
	"more shares than the card takes": {
		plant: func(w *world) {
			for i := range 17 {
				w.slice("n1", fmt.Sprintf("p%02d", i), 0, 1, 1)
			}
		},
		rule: SlicesOverbooked, node: "n1", card: "GPU-n1-0",
		pods: func() (names []string) {
			for i := range 17 {
				names = append(names, fmt.Sprintf("default/p%02d", i))
			}
			return names
		}(),
		message: []string{"17 shares", "takes 16"},
	},
	"two QoS classes on one card": {
		plant: func(w *world) {
			w.slice("n1", "a", 0, 10, 4, qos, "fixed-share")
			w.slice("n1", "b", 0, 10, 4, qos, "burst-share")
			w.slice("n1", "c", 1, 10, 4)
		},
		rule: QoSMixed, node: "n1", card: "GPU-n1-0", pods: []string{"default/a", "default/b"},
		message: []string{"fixed-share (default/a)", "burst-share (default/b)"},
	},
	"an ordinary pod next to an offline one": {
		plant: func(w *world) {
			w.slice("n1", "a", 0, 10, 4, class, "offline")
			w.slice("n1", "b", 0, 10, 4)
		},
		rule: ClassMixed, node: "n1", card: "GPU-n1-0", pods: []string{"default/a", "default/b"},
		message: []string{"with a class (default/a)", "without (default/b)"},
	},
	"an ordinary pod next to an online one": {
		plant: func(w *world) {
			w.pod("n1", "a", "sgpu: 1, vmemory: 4", `[[{"uuid":"GPU-n1-0","vRam":4096}]]`, class, "online")
			w.slice("n1", "b", 0, 10, 4)
		},
		rule: ClassMixed, node: "n1", card: "GPU-n1-0", pods: []string{"default/a", "default/b"},
		message: []string{"with a class (default/a)"},
	},
	"an offline pod that joined an online one": {
		plant: func(w *world) {
			w.pod("n1", "on", "sgpu: 1, vmemory: 4", `[[{"uuid":"GPU-n1-0","vRam":4096}]]`, class, "online", decided, "1000000000")
			w.slice("n1", "off", 0, 10, 4, class, "offline", decided, "3000000000")
		},
		rule: ClassMixed, node: "n1", card: "GPU-n1-0", pods: []string{"default/off", "default/on"},
		message: []string{"pod default/off (offline) joined pod default/on (online)", "2s later"},
	},
	"a pod next to one that is to be alone": {
		plant: func(w *world) {
			w.pod("n1", "alone", "sgpu: 1, vmemory: 4", `[[{"uuid":"GPU-n1-0","compute":100,"vRam":4096}]]`)
			w.pod("n1", "joined", "sgpu: 1, vcore: 0, vmemory: 4", `[[{"uuid":"GPU-n1-0","vRam":4096}]]`)
		},
		rule: ExclusiveShared, node: "n1", card: "GPU-n1-0", pods: []string{"default/alone", "default/joined"},
		message: []string{"pod default/alone has card 0 of n1 (GPU-n1-0) to itself, but default/joined is on it too"},
	},
	"two containers of one pod, one of which is to be alone": {
		plant: func(w *world) {
			pod := gputest.MakePod("p").App("sgpu: 1, vmemory: 4").App("sgpu: 1, vcore: 0, vmemory: 4").On("n1").
				Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-n1-0","compute":100,"vRam":4096}],[{"uuid":"GPU-n1-0","vRam":4096}]]`)
			w.Pods = append(w.Pods, pod.Obj())
		},
		rule: ExclusiveShared, node: "n1", card: "GPU-n1-0", pods: []string{"default/p"},
		message: []string{"container c0 of pod default/p", "container c1"},
	},
	"a card that no node has": {
		plant: func(w *world) {
			w.pod("n1", "a", "sgpu: 1, vcore: 10, vmemory: 4", `[[{"uuid":"GPU-gone","compute":10,"vRam":4096}]]`)
		},
		rule: CardMissing, node: "n1", card: "GPU-gone", pods: []string{"default/a"}, message: []string{"no node has it"},
	},
	"a card of another node": {
		plant: func(w *world) {
			w.pod("n1", "a", "sgpu: 1, vcore: 10, vmemory: 4", `[[{"uuid":"GPU-n2-3","compute":10,"vRam":4096}]]`)
		},
		rule: CardMissing, node: "n1", card: "GPU-n2-3", pods: []string{"default/a"}, message: []string{"it is a card of n2"},
	},
	"a card that two nodes have": {
		plant: func(w *world) {
			w.Devices["n2"].Spec.Devices[1].UUID = "GPU-n1-0"
			delete(w.Devices["n2"].Annotations, wire.AnnotationLinks)
		},
		rule: CardDuplicated, node: "n1", card: "GPU-n1-0", pods: []string{}, message: []string{"n1 and n2"},
	},
	"a node that is not there": {
		plant: func(w *world) { w.slice("n3", "a", 0, 10, 4) },
		rule:  NodeMissing, node: "n3", pods: []string{"default/a"}, message: []string{"node n3, which is not there"},
	},
	"another card for HAMi's readers": {
		plant: func(w *world) { w.slice("n1", "a", 0, 10, 4, wire.AnnotationHAMiSGPU, "GPU-n1-1,Metax-SGPU,4096,10:;") },
		rule:  FormatsDisagree, node: "n1", pods: []string{"default/a"},
		message: []string{wire.AnnotationAllocated + " lists 10% and 4 GiB of card 0", wire.AnnotationHAMiSGPU + " lists 10% and 4 GiB of card 1"},
	},
	"another amount for Koordinator's readers": {
		plant: func(w *world) {
			w.pod("n1", "a", "gpu.shared: 1, gpu-core: 10, gpu-memory: 4Gi", `[[{"uuid":"GPU-n1-0","compute":10,"vRam":4096}]]`,
				wire.AnnotationKoordAllocated, `{"gpu":[{"minor":0,"id":"GPU-n1-0","resources":{"koordinator.sh/gpu-core":"10","koordinator.sh/gpu-memory":"3Gi"}}]}`)
		},
		rule: FormatsDisagree, node: "n1", pods: []string{"default/a"},
		message: []string{"4 GiB of card 0", "3 GiB of card 0"},
	},
	"one annotation can't be read": {
		plant: func(w *world) { w.slice("n1", "a", 0, 10, 4, wire.AnnotationHAMiSGPU, "GPU-n1-0,Metax-SGPU,many,10:;") },
		rule:  FormatsDisagree, node: "n1", pods: []string{"default/a"}, message: []string{"can't be read", `"many" is no number`},
	},
	"more than the pod asked for": {
		plant: func(w *world) {
			w.pod("n1", "a", "sgpu: 1, vcore: 10, vmemory: 4", `[[{"uuid":"GPU-n1-0","compute":80,"vRam":4096}]]`)
		},
		rule: LimitsMismatch, node: "n1", pods: []string{"default/a"}, message: []string{"80%", "asks for 10% and 4 GiB"},
	},
	"less than the pod asked for": {
		plant: func(w *world) {
			w.pod("n1", "a", "sgpu: 1, vcore: 10, vmemory: 4", `[[{"uuid":"GPU-n1-0","compute":10,"vRam":2048}]]`)
		},
		rule: LimitsMismatch, node: "n1", pods: []string{"default/a"}, message: []string{"2 GiB", "asks for 10% and 4 GiB"},
	},
	"more cards than the pod asked for": {
		plant: func(w *world) {
			w.pod("n1", "a", "gpu: 1", `[[{"uuid":"GPU-n1-0","compute":100,"vRam":65536},{"uuid":"GPU-n1-1","compute":100,"vRam":65536}]]`)
		},
		rule: LimitsMismatch, node: "n1", pods: []string{"default/a"}, message: []string{"2 cards for container c0, which asks for 1"},
	},
	"Koordinator's word for less than the pod asked for": {
		plant: func(w *world) {
			w.pod("n1", "a", "gpu.shared: 1, gpu-core: 10, gpu-memory: 4Gi", "",
				wire.AnnotationKoordAllocated, `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"5","koordinator.sh/gpu-memory":"4Gi"}}]}`)
		},
		rule: LimitsMismatch, node: "n1", pods: []string{"default/a"}, message: []string{"5% and 4 GiB of card 0", "10% and 4 GiB"},
	},
	"no annotation at all": {
		plant: func(w *world) { w.vendors("n1").pod("n1", "a", "gpu: 1", "") },
		rule:  Unaccounted, node: "n1", pods: []string{"default/a"}, message: []string{"no annotation lists them", "n1 takes no pods"},
	},
	"an unreadable annotation": {
		plant: func(w *world) { w.vendors("n1").pod("n1", "a", "gpu: 1", "GPU-n1-0") },
		rule:  Unaccounted, node: "n1", pods: []string{"default/a"}, message: []string{wire.AnnotationAllocated + ": invalid character"},
	},
	"an annotation for another node": {
		plant: func(w *world) { w.vendors("n1").slice("n1", "a", 0, 10, 4, wire.AnnotationHAMiNode, "n2") },
		rule:  Unaccounted, node: "n1", pods: []string{"default/a"}, message: []string{"was written for another node"},
	},
	"a node whose cards can't be read": {
		plant: func(w *world) {
			w.Devices["n2"] = cluster.Device{Err: errors.New("spec.devices.minor is a string")}
			w.slice("n2", "a", 0, 10, 4)
		},
		rule: BadInventory, node: "n2", pods: []string{}, message: []string{"spec.devices.minor is a string"},
	},
	"a lock that is not released": {
		plant: func(w *world) {
			w.Nodes[0].Annotations[wire.AnnotationLock] = noon.Add(-20*time.Minute).Format(time.RFC3339) + ",team,trainer"
		},
		rule: LockStuck, node: "n1", pods: []string{"team/trainer"}, message: []string{"20m0s", "team/trainer", "hami.io/mutex.lock"},
	},
}

func plantedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	for _, name := range []string{"n1", "n2"} {
		w.node(t, name, &gputest.Plan{Cards: gputest.Cards(4), Links: gpu.ZoneLinks([]int{1, 1, 2, 2})}, gpu.ModeSGPU)
	}
	return w
}

func TestPlanted(t *testing.T) {
	for name, tc := range planted {
		t.Run(name, func(t *testing.T) {
			w := plantedWorld(t)
			tc.plant(w)
			report := w.audit()
			if len(report.Violations) != 1 {
				t.Fatalf("violations %+v, want one", report.Violations)
			}
			got := report.Violations[0]
			want := Finding{Rule: tc.rule, Node: tc.node, Card: tc.card, Pods: tc.pods, Message: got.Message, Index: got.Index}
			gputest.Equal(t, "finding", want, got)
			for _, part := range tc.message {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message %q, want %q in it", got.Message, part)
				}
			}
			if len(report.Notes) > 0 {
				t.Errorf("notes %+v, want none", report.Notes)
			}
		})
	}
}

// TestPlantedIsComplete: there is a planted state for every rule.
func TestPlantedIsComplete(t *testing.T) {
	for _, rule := range Violations() {
		found := false
		for _, tc := range planted {
			found = found || tc.rule == rule
		}
		if !found {
			t.Errorf("no planted state breaks the rule %s", rule)
		}
	}
}

// TestNotes: what an administrator should know and is no mistake.
func TestNotes(t *testing.T) {
	cases := map[string]struct {
		plant   func(w *world)
		want    Finding
		message string
	}{
		"a pod on a card that became unhealthy": {
			plant: func(w *world) {
				w.slice("n1", "a", 1, 10, 4)
				w.Devices["n1"].Spec.Devices[1].Health = false
				w.Devices["n1"].Spec.Devices[2].Health = false // no pod there
			},
			want: Finding{Rule: UnhealthyInUse, Node: "n1", Card: "GPU-n1-1", Index: new(1), Pods: []string{"default/a"}}, message: "unhealthy and in use by default/a",
		},
		"a request that makes no sense": {
			plant: func(w *world) {
				w.pod("n1", "a", "sgpu: 1, vcore: 120, vmemory: 4", `[[{"uuid":"GPU-n1-0","compute":100,"vRam":4096}]]`)
			},
			want: Finding{Rule: RequestUnclear, Node: "n1", Pods: []string{"default/a"}}, message: "vcore",
		},
		"slices that belong to no pod": {
			plant: func(w *world) {
				delete(w.Devices, "n1")
				w.Nodes[0].Annotations[wire.AnnotationServedBy] = wire.ServedByVendor
				w.Nodes[0].Annotations[wire.AnnotationNodeCards] = `[{"uuid":"GPU-x","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"availableDevCount":14,"availableCompute":50,"availableVRam":61440,"healthy":true}]`
			},
			want: Finding{Rule: ForeignSlices, Node: "n1", Card: "GPU-x", Index: new(0), Pods: []string{}}, message: "2 slices of 4 GiB",
		},
		"no annotation at all, on a node that Daybreak serves": {
			plant: func(w *world) { w.pod("n1", "a", "gpu: 1", "") },
			want:  Finding{Rule: NoAllocation, Node: "n1", Pods: []string{"default/a"}}, message: "no annotation lists them",
		},
		"an annotation that can't be read, on a node that Daybreak serves": {
			plant: func(w *world) { w.pod("n1", "a", "gpu: 1", "GPU-n1-0") },
			want:  Finding{Rule: NoAllocation, Node: "n1", Pods: []string{"default/a"}}, message: wire.AnnotationAllocated + ": invalid character",
		},
		"a preference that can't be read": {
			plant: func(w *world) { w.slice("n1", "a", 0, 10, 4, wire.AnnotationCardPolicy, "best") },
			want:  Finding{Rule: RequestUnclear, Node: "n1", Pods: []string{"default/a"}}, message: "best",
		},
		"a card that only the Device knows": {
			plant: func(w *world) {
				delete(w.Devices["n1"].Annotations, wire.AnnotationLinks)
				w.Nodes[0].Annotations[wire.AnnotationNodeCards] = `[{"uuid":"GPU-n1-0","healthy":true},{"uuid":"GPU-n1-1","healthy":true},{"uuid":"GPU-n1-2","healthy":true}]`
			},
			want: Finding{Rule: CardLeftOut, Node: "n1", Pods: []string{}}, message: "GPU-n1-3",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := plantedWorld(t)
			tc.plant(w)
			report := w.audit()
			if len(report.Violations) != 0 || len(report.Notes) != 1 {
				t.Fatalf("violations %+v and notes %+v, want no violation and one note", report.Violations, report.Notes)
			}
			got := report.Notes[0]
			if !strings.Contains(got.Message, tc.message) {
				t.Errorf("message %q, want %q in it", got.Message, tc.message)
			}
			got.Message = ""
			gputest.Equal(t, "note", tc.want, got)
			if !slices.Contains(Notes(), got.Rule) {
				t.Errorf("%s is not in the list of notes", got.Rule)
			}
		})
	}
}

// TestCounts: pods that ended or ask for nothing are not counted.
func TestCounts(t *testing.T) {
	w := plantedWorld(t)
	w.slice("n1", "a", 0, 10, 4)
	w.slice("n2", "b", 0, 10, 4)
	w.slice("n2", "ended", 0, 99, 64).Status.Phase = "Succeeded"
	w.pod("n2", "web", "cpu: 1", "")
	w.slice("", "pending", 0, 99, 64)
	report := w.audit()
	gputest.Equal(t, "report", &Report{Violations: []Finding{}, Notes: []Finding{}, Nodes: 2, Cards: 8, Pods: 2}, report)
}

// TestConfirmed: what is seen only once is not reported.
func TestConfirmed(t *testing.T) {
	w := plantedWorld(t)
	w.slice("n1", "a", 0, 60, 4)
	w.slice("n1", "b", 0, 60, 4)
	first := w.audit()
	w.pod("n2", "late", "gpu: 1", "")
	got := w.audit().Confirmed(first)
	if len(got.Violations) != 1 || got.Violations[0].Rule != ComputeOverbooked {
		t.Errorf("violations %+v, want the one that was there before", got.Violations)
	}
}

// TestMessageFor: readers of a namespace see no names of pods elsewhere.
func TestMessageFor(t *testing.T) {
	for name, tc := range planted {
		t.Run(name, func(t *testing.T) {
			w := plantedWorld(t)
			tc.plant(w)
			f := w.audit().Violations[0]
			if got := f.MessageFor("default"); !slices.ContainsFunc(f.Pods, func(p string) bool { return !strings.HasPrefix(p, "default/") }) && got != f.Message {
				t.Errorf("of its own namespace: %q, want %q", got, f.Message)
			}
			for _, namespace := range []string{"", "elsewhere"} {
				got := f.MessageFor(namespace)
				for _, pod := range f.Pods {
					if strings.Contains(got, pod) {
						t.Errorf("in namespace %q: %q", namespace, got)
					}
				}
			}
		})
	}
	f := Finding{Pods: []string{"a/p", "a/p-1", "ba/p", "b/q"}, Message: "pod a/p has card 0 to itself, but a/p-1, ba/p (a/p, b/q) are on it: a/p.x, a/p"}
	const want = "another pod has card 0 to itself, but another pod, another pod (another pod, b/q) are on it: a/p.x, another pod"
	gputest.Equal(t, "MessageFor", want, f.MessageFor("b"))
}
