package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// journal is what is read of an agent's journal.
type journal struct {
	Records []journalRecord `json:"records"`
}

type journalRecord struct {
	PodUID    types.UID `json:"podUID"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Names     []string  `json:"names"`
	Shares    []struct {
		Card    string `json:"card"`
		Compute int    `json:"compute"`
		Memory  int    `json:"memory"`
		Slice   *struct {
			Alias string `json:"alias"`
			UUID  string `json:"uuid"`
		} `json:"slice"`
	} `json:"shares"`
}

// holdings is everything that a machine holds for pods.
type holdings struct {
	journal journal
	slices  []fake.Slice
	specs   map[string]bool // by CDI name
}

// specPrefix is what the files of CDI specs are called.
const specPrefix, specSuffix = "daybreak-gpu.io-card_", ".json"

func (s *Machine) holdings() (*holdings, error) {
	h := &holdings{specs: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(s.state(), "journal.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		if err := json.Unmarshal(text, &h.journal); err != nil {
			return nil, fmt.Errorf("journal of %s: %w", s.Node, err)
		}
	}
	if _, h.slices, err = fake.Read(s.Driver()); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.cdi())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), specPrefix); ok {
			h.specs[strings.TrimSuffix(name, specSuffix)] = true
		}
	}
	return h, nil
}

// Leftovers counts everything that the machine holds.
func (s *Machine) Leftovers() (int, error) {
	h, err := s.holdings()
	if err != nil {
		return 0, err
	}
	return len(h.journal.Records) + len(h.slices) + len(h.specs), nil
}

// CheckLeaks returns what is wrong: the journal, the driver and the CDI specs should have what the running
// pods of the machine hold, no less and no more.
func (s *Machine) CheckLeaks(objects *cluster.Objects) []string {
	h, err := s.holdings()
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	say := func(format string, args ...any) { list = append(list, s.Node+": "+fmt.Sprintf(format, args...)) }
	there := map[types.UID]*corev1.Pod{}
	for _, pod := range objects.Pods {
		if pod.Spec.NodeName == s.Node && wire.Holds(pod) {
			there[pod.UID] = pod
		}
	}
	recorded := map[string]bool{}
	for i := range h.journal.Records {
		recorded[string(h.journal.Records[i].PodUID)+"/"+h.journal.Records[i].Container] = true
	}
	list = append(list, s.checkRunning(there, h.specs, recorded)...)
	slices := map[string]fake.Slice{}
	for _, x := range h.slices {
		slices[x.UUID] = x
	}
	for i := range h.journal.Records {
		r := &h.journal.Records[i]
		if there[r.PodUID] == nil {
			say("leak: the journal has container %s of pod %s, which is gone", r.Container, r.Pod)
		}
		for _, name := range r.Names {
			delete(h.specs, name)
		}
		list = append(list, s.checkSlices(r, slices)...)
	}
	for _, x := range slices {
		say("leak: slice %s %q of card %d is of no container", x.UUID, x.Alias, x.Card)
	}
	for name := range h.specs {
		say("leak: CDI device %s is of no container", name)
	}
	return list
}

// checkRunning: the journal has every running container, and there is a spec of every CDI
// device that one was given.
func (s *Machine) checkRunning(there map[types.UID]*corev1.Pod, specs, recorded map[string]bool) []string {
	var list []string
	for uid, pod := range there {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, c := range s.containersOf(uid) {
			if !recorded[string(uid)+"/"+c.name] {
				list = append(list, fmt.Sprintf("%s: container %s of pod %s runs, and the journal does not have it", s.Node, c.name, pod.Name))
			}
			for _, device := range c.cdi {
				if _, name, _ := strings.Cut(device, "="); !specs[name] {
					list = append(list, fmt.Sprintf("%s: container %s of pod %s was given CDI device %s, of which there is no spec", s.Node, c.name, pod.Name, name))
				}
			}
		}
	}
	return list
}

// checkSlices takes the slices of a record off the list, each of which has to
// be there with what it should have.
func (s *Machine) checkSlices(r *journalRecord, slices map[string]fake.Slice) []string {
	var list []string
	for i := range r.Shares {
		note := r.Shares[i].Slice
		if note == nil {
			continue
		}
		x, ok := slices[note.UUID]
		if !ok || x.Alias != note.Alias || x.MiB != r.Shares[i].Memory || x.Compute != r.Shares[i].Compute {
			list = append(list, fmt.Sprintf("%s: container %s of pod %s has lost its slice of card %s: want %s %q with %d MiB and %d%%, there is %+v",
				s.Node, r.Container, r.Pod, r.Shares[i].Card, note.UUID, note.Alias, r.Shares[i].Memory, r.Shares[i].Compute, x))
		}
		delete(slices, note.UUID)
	}
	return list
}
