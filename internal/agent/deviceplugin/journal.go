package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// record is what one container was given. The journal replaces, never changes it.
type record struct {
	PodUID    types.UID `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	// Tokens are kubelet's ids in the order of Shares: none until all was given, and
	// none once kubelet has given one of them to another pod.
	Tokens []string `json:"tokens"`
	// Names are the CDI names that it was given under; none until all was given.
	Names []string `json:"names,omitempty"`
	// Together: several containers of the pod have the same tokens, one after the
	// other, so that the tokens alone do not identify the container.
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
	// Pending: it is about to be made. Before are the UUIDs of the card's other
	// slices.
	Pending bool     `json:"pending,omitempty"`
	Before  []string `json:"before,omitempty"`
	// UUID is empty until the slice is known to be there.
	UUID  string `json:"uuid,omitempty"`
	ID    int    `json:"id"`
	Minor int    `json:"minor"`
}

// containerID names a container of a pod.
type containerID struct {
	pod       types.UID
	container string
}

func (r *record) id() containerID { return containerID{r.PodUID, r.Container} }

func (r *record) String() string { return r.Namespace + "/" + r.Pod + "/" + r.Container }

// clone returns a record that may be changed.
func (r *record) clone() *record {
	c := *r
	c.Tokens, c.Names, c.Shares = slices.Clone(r.Tokens), slices.Clone(r.Names), slices.Clone(r.Shares)
	return &c
}

// has reports whether the record has exactly these tokens, which are sorted.
func (r *record) has(tokens []string) bool { return slices.Equal(r.Tokens, tokens) }

// hasAny reports whether the record has one of the tokens.
func (r *record) hasAny(tokens []string) bool {
	return slices.ContainsFunc(r.Tokens, func(t string) bool { return slices.Contains(tokens, t) })
}

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
	// Foreign are records of what another plugin gave to containers: cards and
	// amounts, no tokens. They stay until the containers are gone.
	Foreign []*record `json:"foreign,omitempty"`
	// Vendor is what is remembered of the vendor's plugin.
	Vendor vendorNote `json:"vendor,omitzero"`
}

// journalVersion is that of the format.
const journalVersion = 1

// journal remembers what was given, over the agent's own end and the machine's.
type journal struct {
	path  string
	write func(path string, text []byte) error
	// changing is held by the change that is being written.
	changing sync.Mutex
	disk     atomic.Pointer[document]
}

// openJournal reads the journal in a folder.
func openJournal(dir string, write func(path string, text []byte) error) (*journal, error) {
	j := &journal{path: filepath.Join(dir, "journal.json"), write: write}
	d := document{Version: journalVersion, Names: map[string][]string{}}
	text, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("journal: %w", err)
	default:
		if d, err = decodeJournal(text); err != nil {
			return nil, fmt.Errorf("journal %s: %w; move it away if it can't be restored: slices are then found again by their names", j.path, err)
		}
	}
	j.disk.Store(&d)
	return j, nil
}

// now returns what is on disk. It must not be changed.
func (j *journal) now() *document { return j.disk.Load() }

// change edits what is on disk. If it returns nil the change is there, whatever
// happens next; otherwise nothing counts as changed.
func (j *journal) change(edit func(d *document) error) error {
	j.changing.Lock()
	defer j.changing.Unlock()
	before := j.now()
	d := &document{
		Version: before.Version, Records: slices.Clone(before.Records), Names: maps.Clone(before.Names),
		Foreign: slices.Clone(before.Foreign), Vendor: before.Vendor,
	}
	if err := edit(d); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.write(j.path, append(text, '\n')); err != nil {
		return errDisk{fmt.Errorf("journal: %w", err)}
	}
	j.disk.Store(d)
	return nil
}

// decodeJournal reads what is on disk, and rejects what no agent would write.
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
	missing := func(r *record) bool { return r == nil }
	d.Records, d.Foreign = slices.DeleteFunc(d.Records, missing), slices.DeleteFunc(d.Foreign, missing)
	seen, tokens := map[containerID]bool{}, map[string]bool{}
	for _, r := range d.all() {
		if seen[r.id()] {
			return d, fmt.Errorf("%.200s has two records", r)
		}
		seen[r.id()] = true
		if err := r.validate(); err != nil {
			return d, fmt.Errorf("%.200s: %w", r, err)
		}
		for _, t := range r.Tokens {
			if tokens[t] {
				return d, fmt.Errorf("%.200s: token %s stands for two containers or cards", r, t)
			}
			tokens[t] = true
		}
	}
	for token, names := range d.Names {
		if i := slices.IndexFunc(names, func(n string) bool { return tokenOf(n) != token }); i >= 0 {
			return d, fmt.Errorf("%.100q is no name of token %.100q", names[i], token)
		}
	}
	return d, nil
}

// validate checks what a record is made of.
func (r *record) validate() error {
	if len(r.Tokens) > 0 && len(r.Tokens) != len(r.Shares) {
		return fmt.Errorf("%d tokens stand for %d cards", len(r.Tokens), len(r.Shares))
	}
	for _, t := range r.Tokens {
		if !isToken(t) {
			return fmt.Errorf("%.100q is no token", t)
		}
	}
	for _, n := range r.Names {
		if tokenOf(n) == "" {
			return fmt.Errorf("%.100q is no name of a CDI device", n)
		}
	}
	for i := range r.Shares {
		s := &r.Shares[i]
		if s.Compute < 0 || s.Compute > gpu.FullCompute || s.Memory < 0 || s.Memory > maxJournalMemory {
			return fmt.Errorf("%d%% and %d MiB of card %.100s", s.Compute, s.Memory, s.Card)
		}
		if s.Slice != nil && (s.Slice.ID < 0 || s.Slice.Minor < 0) {
			return fmt.Errorf("slice %d with minor number %d", s.Slice.ID, s.Slice.Minor)
		}
	}
	return nil
}

// maxJournalMemory is more than any card has.
const maxJournalMemory gpu.MiB = 16 << 20

// writeSynced replaces a file; after a crash it is the old one or the new one.
func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name())) // it takes up what room is left
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

// byContainer returns what a container was given.
func (d *document) byContainer(id containerID) *record {
	return d.find(func(r *record) bool { return r.id() == id })
}

func (d *document) find(is func(*record) bool) *record {
	if at := slices.IndexFunc(d.Records, is); at >= 0 {
		return d.Records[at]
	}
	return nil
}

// put adds a record in place of the container's last one, and of those of other
// containers of the pod that had its tokens before.
func (d *document) put(r *record) {
	d.Records = append(slices.DeleteFunc(d.Records, func(o *record) bool {
		return o.id() == r.id() || o.PodUID == r.PodUID && o.hasAny(r.Tokens)
	}), r)
}

// all returns all records, those of what other plugins gave too.
func (d *document) all() []*record { return slices.Concat(d.Records, d.Foreign) }

// drop takes a record out, and its CDI names, which are not given again.
func (d *document) drop(r *record) {
	same := func(o *record) bool { return o.id() == r.id() }
	d.Records, d.Foreign = slices.DeleteFunc(d.Records, same), slices.DeleteFunc(d.Foreign, same)
	for _, token := range r.Tokens {
		delete(d.Names, token) // no other pod was given it since
	}
	d.forget(r.Names)
}

// forget takes CDI names out.
func (d *document) forget(gone []string) {
	for _, name := range gone {
		token := tokenOf(name)
		rest := slices.DeleteFunc(slices.Clone(d.Names[token]), func(n string) bool { return n == name })
		if len(rest) == 0 {
			delete(d.Names, token)
			continue
		}
		d.Names[token] = rest
	}
}

// maxNames bounds the names of one token that were given and not used: those of a pod
// whose containers take turns, or of pods that never started.
const maxNames = 16

// name gives the token a further name.
func (d *document) name(token, name string) {
	names := append(slices.Clone(d.Names[token]), name)
	d.Names[token] = names[max(0, len(names)-maxNames):]
}

// newest returns the last n names of a token.
func (d *document) newest(token string, n int) []string {
	names := d.Names[token]
	return slices.Clone(names[max(0, len(names)-n):])
}

// detach removes tokens from records, since kubelet gives them to another pod, and
// returns the CDI names that are no longer used.
func (d *document) detach(tokens []string) (gone []string) {
	for i, r := range d.Records {
		if !r.hasAny(tokens) {
			continue
		}
		gone = append(gone, r.Names...)
		r = r.clone()
		r.Tokens, r.Names = nil, nil
		d.Records[i] = r
	}
	d.forget(gone)
	return gone
}

// held returns the card that each token stands for.
func (d *document) held() map[string]gpu.CardID {
	held := map[string]gpu.CardID{}
	for _, r := range d.Records {
		for i, t := range r.Tokens {
			held[t] = r.Shares[i].Card
		}
	}
	return held
}
