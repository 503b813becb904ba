package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// managed is a world with nodes whose kubelets know of slices only, for
// managers to look after.
type managed struct {
	*world
}

// running is a manager under test.
type running struct {
	*harness.Manager
	url string
}

// manager starts a manager and stops it when the scenario ends.
func (w managed) manager(name string, cfg manager.Config) *running {
	w.Helper()
	cfg.MetricsAddress = w.FreeAddress()
	return &running{w.Manager(name, cfg), "http://" + cfg.MetricsAddress}
}

// metric returns the value of a series, such as `x_total{result="applied"}`.
func (r *running) metric(series string) (float64, error) {
	text, err := get(r.url + "/metrics")
	if err != nil {
		return 0, err
	}
	return machine.Metrics(text).Value(series)
}

// get reads a page. kube-scheduler's certificate is its own.
func get(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it signs its own
	defer client.CloseIdleConnections()
	answer, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// node adds a node that advertises 16 slices, and the Device.
func (w managed) node(name, device string) {
	w.Helper()
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("100"), wire.ResourceSGPU: resource.MustParse("16"),
	}
	w.Must(w.Simulator.AdoptNode(w.Ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kept": "yes"}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: maps.Clone(list)},
	}))
	if device != "" {
		w.Must(w.Apply(w.Ctx, strings.NewReader(strings.ReplaceAll(device, "NODE", name))))
	}
}

// twoCards is the seed's Device with a second card.
var twoCards = func() string {
	const start = "  - health: true\n"
	at := strings.Index(seedDevice, start)
	second := strings.NewReplacer("89033010-2354", "89033010-2355", "minor: 0", "minor: 1", "0000:38", "0000:39").Replace(seedDevice[at:])
	return seedDevice + second
}()

// koord returns what the node has of koordinator.sh and metax-tech.com, which
// must be the same in capacity and allocatable.
func (w managed) koord(name string) (map[string]string, error) {
	w.Helper()
	node, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pick := func(list corev1.ResourceList) map[string]string {
		out := map[string]string{}
		for key, q := range list {
			if strings.HasPrefix(string(key), "koordinator.sh/") || strings.HasPrefix(string(key), "metax-tech.com/") {
				out[string(key)] = q.String()
			}
		}
		return out
	}
	capacity, allocatable := pick(node.Status.Capacity), pick(node.Status.Allocatable)
	if !maps.Equal(capacity, allocatable) {
		return nil, fmt.Errorf("capacity %v, but allocatable %v", capacity, allocatable)
	}
	return capacity, nil
}

// wantKoord waits until the node advertises exactly these.
func (w managed) wantKoord(node string, want map[string]string) {
	w.Helper()
	start := time.Now()
	w.Eventually("resources of "+node, 30*time.Second, func() error {
		got, err := w.koord(node)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	w.Logf("%s as wanted after %s", node, time.Since(start).Round(time.Millisecond))
}

// cards returns what a node with n cards of 64 GiB advertises.
func cards(n int, change ...string) map[string]string {
	percent := strconv.Itoa(100 * n)
	out := map[string]string{
		"koordinator.sh/gpu.shared": percent, "koordinator.sh/gpu-core": percent, "koordinator.sh/gpu-memory-ratio": percent,
		"koordinator.sh/gpu": percent, "koordinator.sh/gpu-memory": fmt.Sprintf("%dGi", 64*n), "metax-tech.com/sgpu": "16",
	}
	for i := 0; i < len(change); i += 2 {
		out[change[i]] = change[i+1]
	}
	return out
}

func (w managed) wantLabels(node string, want map[string]string) {
	w.Helper()
	w.Eventually("labels of "+node, 30*time.Second, func() error {
		n := w.Node(node)
		got := map[string]string{}
		for key, value := range n.Labels {
			if strings.HasPrefix(key, "node.koordinator.sh/") {
				got[key] = value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// wantEvent waits for an Event on the node and returns its text.
func (w managed) wantEvent(node, reason string, texts ...string) {
	w.Helper()
	w.Eventually(reason+" on "+node, 30*time.Second, func() error {
		list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node})
		if err != nil {
			return err
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			missing := slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e.Message, text) })
			if e.Reason == reason && !missing {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events: %q", seen)
	})
}

// kubelet writes the node's status as a kubelet does: a strategic merge patch.
func (w managed) kubelet(node, patch string) {
	w.Helper()
	_, err := w.Client.CoreV1().Nodes().Patch(w.Ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	w.Must(err)
}
