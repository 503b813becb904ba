package dashboard

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// noon is the time at which everything here is looked at.
func noon() time.Time { return time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC) }

const exampleCluster = "../../../examples/cluster.yaml"

// read reads the example cluster and further documents.
func read(t testing.TB, documents ...string) *cluster.Objects {
	t.Helper()
	o, err := cluster.ReadFiles([]string{exampleCluster, "-"}, strings.NewReader(strings.Join(documents, "---\n")+"---\n"))
	gputest.Must(t, err)
	return o
}

// running is a pod with a best-effort slice of a card of metax-a.
func running(namespace, name, uuid string) string {
	return `apiVersion: v1
kind: Pod
metadata:
  namespace: ` + namespace + `
  name: ` + name + `
  annotations: {metax-tech.com/gpu-devices-allocated: '[[{"uuid":"` + uuid + `","compute":20,"vRam":4096}]]'}
spec:
  nodeName: metax-a
  containers:
  - {name: main, resources: {limits: {metax-tech.com/sgpu: 1, metax-tech.com/vcore: 20, metax-tech.com/vmemory: 4}}}
`
}

// waiting is a pod that asks for so many whole cards.
func waiting(namespace, name, cards string) string {
	return `apiVersion: v1
kind: Pod
metadata: {namespace: ` + namespace + `, name: ` + name + `}
spec:
  containers:
  - {name: main, resources: {limits: {metax-tech.com/gpu: ` + cards + `}}}
`
}

// card is the UUID of a card of metax-a.
func card(i string) string { return "GPU-000000a" + i + "-c500-0000-0000-000000000000" }

// changing is a source that the test changes.
type changing struct {
	mu      sync.Mutex
	objects *cluster.Objects
	err     error
	read    int
	changed func()
}

func (f *changing) Objects() (*cluster.Objects, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	return f.objects, f.err
}

func (f *changing) OnChange(changed func()) error {
	f.changed = changed
	return nil
}

// set puts other objects in place of those that are there.
func (f *changing) set(o *cluster.Objects) {
	f.mu.Lock()
	f.objects = o
	f.mu.Unlock()
	f.changed()
}

// reads counts how often the objects were asked for.
func (f *changing) reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}
