package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// record is what one container was given.
type record struct {
	PodUID    types.UID `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	// Tokens are kubelet's ids that stand for it. One that kubelet has given to
	// someone else since is not among them.
	Tokens []string `json:"tokens"`
	// Names are the CDI names that it was given under; none until all is there
	// that it is to have.
	Names []string `json:"names,omitempty"`
	// Together tells that several containers of the pod have the same tokens, one
	// after the other: they alone do not say who it is.
	Together bool      `json:"together,omitempty"`
	QoS      gpu.QoS   `json:"qos,omitempty"`
	Class    gpu.Class `json:"class,omitempty"`
	Shares   []share   `json:"shares"`
}

// share is what the container has of one card.
type share struct {
	Card      gpu.CardID  `json:"card"`
	Compute   gpu.Percent `json:"compute,omitempty"`
	Memory    gpu.MiB     `json:"memory,omitempty"`
	Exclusive bool        `json:"exclusive,omitempty"`
	// Seat is a place on a shared card, without amounts.
	Seat bool `json:"seat,omitempty"`
	// Slice is nil where the container gets the card itself.
	Slice *sliceNote `json:"slice,omitempty"`
}

// sliceNote is a slice that is to be made, or was.
type sliceNote struct {
	Alias string `json:"alias"`
	BDF   string `json:"bdf"`
	// Pending tells that it is about to be made, and Before which slices, by
	// UUID, were on the card before.
	Pending bool     `json:"pending,omitempty"`
	Before  []string `json:"before,omitempty"`
	// UUID is empty until the slice is known to be there.
	UUID  string `json:"uuid,omitempty"`
	ID    int    `json:"id"`
	Minor int    `json:"minor"`
}

func (r *record) String() string { return r.Namespace + "/" + r.Pod + "/" + r.Container }

// has reports whether the record is about exactly these tokens, which are
// sorted.
func (r *record) has(tokens []string) bool { return slices.Equal(r.Tokens, tokens) }

// sameShares reports whether two records give the same of the same cards.
func (r *record) sameShares(o *record) bool {
	return r.QoS == o.QoS && r.Class == o.Class && slices.EqualFunc(r.Shares, o.Shares, func(a, b share) bool {
		a.Slice, b.Slice = nil, nil
		return a == b
	})
}

// document is what is on disk.
type document struct {
	Version int       `json:"version"`
	Records []*record `json:"records"`
	// Names are the CDI names that were given for a token, the newest last.
	Names map[string][]string `json:"names"`
}

// journalVersion is that of the format.
const journalVersion = 1

// journal remembers what was given, over the agent's own end and the machine's.
// It is not safe for concurrent use.
type journal struct {
	path string
	document
}

// openJournal reads the journal in a folder, which is made if need be.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: filepath.Join(dir, "journal.json"), document: document{Version: journalVersion, Names: map[string][]string{}}}
	text, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, nil
	case err != nil:
		return nil, fmt.Errorf("journal: %w", err)
	}
	if j.document, err = decodeJournal(text); err != nil {
		return nil, fmt.Errorf("journal %s: %w; move it away if it can't be restored: slices are then found again by their names", j.path, err)
	}
	return j, nil
}

// decodeJournal reads what is on disk. Amounts that no card has are not ours.
func decodeJournal(text []byte) (document, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return d, err
	}
	if d.Version != journalVersion {
		return d, fmt.Errorf("it has version %d, this agent writes %d", d.Version, journalVersion)
	}
	if d.Names == nil {
		d.Names = map[string][]string{}
	}
	d.Records = slices.DeleteFunc(d.Records, func(r *record) bool { return r == nil })
	for _, r := range d.Records {
		for i := range r.Shares {
			s := &r.Shares[i]
			if s.Compute < 0 || s.Compute > gpu.FullCompute || s.Memory < 0 || s.Memory > maxJournalMemory {
				return d, fmt.Errorf("%.200s has %d%% and %d MiB of card %.100s", r, s.Compute, s.Memory, s.Card)
			}
		}
	}
	return d, nil
}

// maxJournalMemory is more than any card has.
const maxJournalMemory gpu.MiB = 16 << 20

// save brings the journal to disk. When it returns nil it is there, whatever
// happens next.
func (j *journal) save() error {
	text, err := json.MarshalIndent(&j.document, "", " ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := writeSynced(j.path, append(text, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// writeSynced replaces a file; after a crash it is the old one or the new one.
func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// byTokens returns the record of exactly these tokens, which are sorted.
func (j *journal) byTokens(tokens []string) *record {
	for _, r := range j.Records {
		if r.has(tokens) {
			return r
		}
	}
	return nil
}

// byContainer returns what a container was given.
func (j *journal) byContainer(uid types.UID, container string) *record {
	for _, r := range j.Records {
		if r.PodUID == uid && r.Container == container {
			return r
		}
	}
	return nil
}

// put adds a record in place of the container's last one.
func (j *journal) put(r *record) {
	j.Records = append(slices.DeleteFunc(j.Records, func(o *record) bool {
		return o.PodUID == r.PodUID && o.Container == r.Container
	}), r)
}

// drop takes a record out, and its CDI names, which are not given again.
func (j *journal) drop(r *record) {
	j.Records = slices.DeleteFunc(j.Records, func(o *record) bool { return o == r })
	for _, token := range r.Tokens {
		delete(j.Names, token) // nobody else was given it since
	}
	for token, names := range j.Names {
		names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(r.Names, n) })
		if len(names) == 0 {
			delete(j.Names, token)
			continue
		}
		j.Names[token] = names
	}
}

// maxNames bounds the names of one token that were given and not used: those
// of a pod whose containers take turns, or of pods that never started.
const maxNames = 16

// name gives the token a further name.
func (j *journal) name(token, name string) {
	j.Names[token] = append(j.Names[token], name)
	j.Names[token] = j.Names[token][max(0, len(j.Names[token])-maxNames):]
}

// detach takes tokens off everyone who had them: kubelet gives them anew.
func (j *journal) detach(tokens []string) {
	for _, r := range j.Records {
		if slices.ContainsFunc(r.Tokens, func(t string) bool { return slices.Contains(tokens, t) }) {
			r.Tokens = slices.DeleteFunc(slices.Clone(r.Tokens), func(t string) bool { return slices.Contains(tokens, t) })
		}
	}
}

// held returns the card that each token stands for.
func (j *journal) held() map[string]gpu.CardID {
	held := map[string]gpu.CardID{}
	for _, r := range j.Records {
		for i, t := range r.Tokens {
			if i < len(r.Shares) {
				held[t] = r.Shares[i].Card
			}
		}
	}
	return held
}
