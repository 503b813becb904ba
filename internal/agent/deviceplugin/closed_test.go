package deviceplugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// oneCard is the limits of a container that wants a card for itself, and
// allOf an allocation of it.
var oneCard = corev1.ResourceList{whole: resource.MustParse("1")}

func allOf(card string) string { return `[[{"uuid":"` + card + `","compute":100,"vRam":65536}]]` }

// wantNoStart calls PreStart and expects it to fail for a reason.
func (s *scene) wantNoStart(resource, reason string, ids ...string) {
	s.Helper()
	s.eventually("it does not start: "+reason, func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), s.patience)
		defer cancel()
		err := s.server.preStart(ctx, resource, ids)
		if err == nil {
			s.Fatalf("the container starts, want an error with %q", reason)
		}
		return strings.Contains(err.Error(), reason)
	})
}

// A pod of which kubelet says that another plugin gave it devices holds cards,
// also where nothing shows which.
func TestUnknownCards(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	silent := func(p *corev1.Pod) { p.Annotations, p.Status.Phase = nil, corev1.PodRunning }
	s.pod("waits", oneCard, "", silent, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	s.startSlice("first", "GPU-b", 10, 4, "daybreak-sgpu-001") // a pod that was given nothing is not in the way
	old := s.pod("old", oneCard, "", silent)
	s.has(old, whole, "GPU-of-an-earlier-driver")
	s.slicePod("new", "GPU-a", 10, 4)
	s.admit(slice, "new", "daybreak-sgpu-000")
	s.pass(2 * givenInterval)
	s.wantNoStart(slice, "cards are not known", "daybreak-sgpu-000")
}

// A container that restarts gets its cards again only if kubelet says that it
// is the one, and if no other pod has been given them since.
func TestRestartIsChecked(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.pod("a", oneCard, allOf("GPU-a"), running)
	s.admit(whole, "a", "daybreak-gpu-000")
	s.starts(whole, "daybreak-gpu-000")
	s.restart() // what it knew of the container is the journal's
	s.pod("b", oneCard, allOf("GPU-b"))
	holder := func(pod string) {
		s.kubelet.change(func() { s.kubelet.held = []*podresources.PodResources{podWith(pod, whole, "daybreak-gpu-000")} })
	}
	holder("b")
	s.wantNoStart(whole, "kubelet reports that another container has the ids", "daybreak-gpu-000")
	holder("a")
	s.has(s.pod("vendors", oneCard, allOf("GPU-a"), running), whole, "GPU-a")
	s.pass(2 * givenInterval)
	s.wantNoStart(whole, "one of the two wants it alone", "daybreak-gpu-000")
	s.delete("vendors")
	s.makeIll("GPU-a")
	s.starts(whole, "daybreak-gpu-000") // a card that became unhealthy is not taken from who has it
}

// A container does not start without a device that the driver has, and no spec is left
// that would start it. The driver's number is enough where only the path is missing.
func TestMissingDevices(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lose      func(s *scene)
		wantWhole string // empty: it starts
		wantSlice string
	}{
		"the control device": {func(s *scene) { s.host.remove("/dev/mxcd") }, "/dev/mxcd: file does not exist", "/dev/mxcd: file does not exist"},
		"the device of a card": {func(s *scene) {
			gputest.Check(s, os.RemoveAll(filepath.Join(s.host.sysfs, "devices", "pci0000:00", "0000:01:00.0", "drm", "card0")))
		}, "is the driver loaded?", ""},
		"the driver of slices": {func(s *scene) {
			s.host.write(s.T, filepath.Join(s.host.procfs, "devices"), "Character devices:\n  1 mem\n")
		}, "", "0 major numbers of driver sgpu"},
		"paths alone": {func(s *scene) { s.host.remove("/dev/dri/card0"); s.host.remove("/dev/sgpu16") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			tc.lose(s)
			s.pod("whole", oneCard, allOf("GPU-a"))
			s.slicePod("part", "GPU-b", 30, 4)
			for pod, want := range map[string]string{"whole": tc.wantWhole, "part": tc.wantSlice} {
				resource, id := whole, "daybreak-gpu-000"
				if pod == "part" {
					resource, id = slice, "daybreak-sgpu-000"
				}
				names := s.admit(resource, pod, id)
				if want == "" {
					s.starts(resource, id)
					continue
				}
				s.wantNoStart(resource, want, id)
				gputest.Equal(t, "pod "+pod+" would see", []string{"nothing"}, s.sees(names...))
			}
		})
	}
}

// A start that could not be written down is none: the next one is the first.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := s.pod("a", oneCard, allOf("GPU-a"))
	s.delete("a")
	s.admit(whole, "a", "daybreak-gpu-000")
	block := filepath.Join(s.cfg.State, "journal.json.new")
	gputest.Must(t, os.Mkdir(block, 0o700))
	s.locked(func() { s.pods["default/a"] = pod })
	s.wantNoStart(whole, "journal", "daybreak-gpu-000")
	s.pass(2 * aheadLimit) // nothing is under way any more
	s.makeIll("GPU-a")
	gputest.Must(t, os.Remove(block))
	s.wantNoStart(whole, "card GPU-a is unhealthy", "daybreak-gpu-000")
}

// A spec is written under the names that were given to this pod and no other.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	never := s.admit(slice, "never", "daybreak-sgpu-000") // no pod of this name comes
	first := s.startSlice("a", "GPU-a", 30, 4, "daybreak-sgpu-000")
	gputest.Equal(t, "a pod that never started would see", []string{"nothing"}, s.sees(never...))
	s.setAlive("a", true)
	s.admit(slice, "b", "daybreak-sgpu-000")
	gputest.Equal(t, "the pod whose id was given away would see", []string{"nothing"}, s.sees(first...))
}

// A journal that this agent would not have written is rejected when it is read.
func TestMalformedJournal(t *testing.T) {
	t.Parallel()
	record := func(more string) string {
		return `{"version":1,"records":[{"podUID":"u","namespace":"n","pod":"p","container":"c",` + more + `}]}`
	}
	share, two := `{"card":"GPU-a"}`, `"daybreak-sgpu-000","daybreak-sgpu-001"`
	cases := map[string]struct{ text, want string }{
		"more tokens than cards":       {record(`"tokens":[` + two + `],"shares":[` + share + `]`), "2 tokens stand for 1 cards"},
		"what is no token":             {record(`"tokens":["../x"],"shares":[` + share + `]`), "is no token"},
		"one token twice":              {record(`"tokens":["daybreak-sgpu-000","daybreak-sgpu-000"],"shares":[` + share + `,` + share + `]`), "stands for two"},
		"a name that leads elsewhere":  {record(`"tokens":[],"names":["../../etc/cdi/x"],"shares":[]`), "is no name of a CDI device"},
		"a negative minor number":      {record(`"tokens":[],"shares":[{"card":"GPU-a","slice":{"alias":"x","bdf":"y","id":1,"minor":-1}}]`), "minor number -1"},
		"a name of another token":      {`{"version":1,"names":{"daybreak-sgpu-001":["daybreak-sgpu-000-0123456789ab"]}}`, "is no name of token"},
		"two records of one container": {`{"version":1,"records":[{"podUID":"u","container":"c"},{"podUID":"u","container":"c"}]}`, "has two records"},
		"fewer tokens than cards":      {record(`"tokens":["daybreak-sgpu-001"],"shares":[` + share + `,` + share + `]`), "1 tokens stand for 2 cards"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := decodeJournal([]byte(tc.text))
			gputest.ErrorHas(t, "decodeJournal", tc.want, err)
		})
	}
}

// A second agent with the same state waits, says so and registers nothing.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	second, err := New(s.cfg, s, s.driver, NewMetrics(nil), s.clock)
	gputest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); _ = second.Run(ctx) }()
	second.Update(s.node)
	s.eventually("it says that it waits", func() bool { return strings.Contains(second.Status().Waits, "another agent works with it") })
	registered := s.registrations()
	s.pass(10 * watchInterval)
	if now := s.registrations(); now != registered || !s.server.Status().Serving {
		t.Errorf("the second agent registered its plugins: %d registrations, %d before", now, registered)
	}
	s.stop()
	s.eventually("it serves when the first has ended", func() bool { return second.Status().Serving })
	cancel()
	<-done
}

// A journal that can't be read keeps the node from being served, until it was
// put right.
func TestJournalUnreadable(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.stop()
	s.spoil()
	s.launch()
	s.eventually("it is said", func() bool { return strings.Contains(s.server.Status().Waits, "move it away if it can't be restored") })
	gputest.Must(t, os.Remove(filepath.Join(s.cfg.State, "journal.json")))
	s.isServed(true)
}

// A slice is looked for on its card, wherever that is now; what was given of a
// card that is gone for good is forgotten with its pod.
func TestCardMovesOrGoes(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"it has moved": false, "it is gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			s.startSlice("a", "GPU-a", 30, 4, "daybreak-sgpu-000")
			s.driver.mu.Lock()
			card := s.driver.cards["0000:01:00.0"]
			delete(s.driver.cards, "0000:01:00.0")
			s.driver.cards["0000:0a:00.0"] = card
			s.driver.mu.Unlock()
			s.changeNode(func(n *Node) {
				delete(n.Cards, "GPU-a")
				if !gone {
					n.Cards["GPU-a"] = Card{BDF: "0000:0a:00.0", Healthy: true, Here: true}
				}
			})
			s.pass(2 * slicesInterval)
			if len(s.driver.aliases()) != 1 {
				t.Fatal("the slice of a pod that is there was removed")
			}
			s.setAlive("a", true)
			s.delete("a")
			s.pass(4 * sweepInterval)
			if len(s.records()) != 1 {
				t.Fatal("the record is gone although a container lives")
			}
			s.setAlive("a", false)
			s.eventually("the record goes", func() bool { return len(s.records()) == 0 })
			if left := len(s.driver.aliases()); !gone && left != 0 {
				t.Errorf("%d slices are left", left)
			}
		})
	}
}
