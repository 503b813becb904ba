package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// Namespace creates a namespace, unless there is one, and returns when pods can be
// created in it.
func (w *World) Namespace(name string, labels map[string]string) {
	w.Helper()
	_, err := w.Client.CoreV1().Namespaces().Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		w.Must(err)
	}
	w.Eventually("service account of "+name, time.Minute, func() error {
		_, err := w.Client.CoreV1().ServiceAccounts(name).Get(w.Ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Create creates pods, each in its namespace.
func (w *World) Create(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		_, err := w.Client.CoreV1().Pods(p.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
		w.Must(err)
	}
}

// Delete deletes pods at once.
func (w *World) Delete(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Must(w.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(w.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
}

// Pods returns the pods of the namespace default.
func (w *World) Pods() []corev1.Pod {
	w.Helper()
	list, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	return list.Items
}

// Pod returns a pod of the namespace default, which has to be there.
func (w *World) Pod(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	return pod
}

// Node returns a node, which has to be there.
func (w *World) Node(name string) *corev1.Node {
	w.Helper()
	node, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	return node
}

// Bound waits until the pod has a node and returns it.
func (w *World) Bound(name string) *corev1.Pod {
	w.Helper()
	var p *corev1.Pod
	w.Eventually("pod "+name+" bound", time.Minute, func() error {
		var err error
		if p, err = w.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(w.Ctx, name, metav1.GetOptions{}); err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("pending: %v", p.Status.Conditions)
		}
		return err
	})
	return p
}

// AllBound waits until every pod has a node.
func (w *World) AllBound(limit time.Duration) []corev1.Pod {
	w.Helper()
	var list *corev1.PodList
	w.Eventually("all pods bound", limit, func() error {
		var err error
		if list, err = w.Client.CoreV1().Pods(metav1.NamespaceDefault).List(w.Ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		pending, last := 0, (*corev1.Pod)(nil)
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				pending, last = pending+1, &list.Items[i]
			}
		}
		if pending > 0 {
			return fmt.Errorf("%d of %d pods are pending, such as %s: %+v", pending, len(list.Items), last.Name, last.Status)
		}
		return nil
	})
	return list.Items
}

// Refusals returns what the pod's events say of why it is pending.
func (w *World) Refusals(pod string) []string {
	w.Helper()
	list, err := w.Client.CoreV1().Events(metav1.NamespaceDefault).List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	w.Must(err)
	var out []string
	for i := range list.Items {
		if list.Items[i].Reason == "FailedScheduling" {
			out = append(out, list.Items[i].Message)
		}
	}
	return out
}

// Refused waits until one of these messages of a pod has the text.
func (w *World) Refused(pod, text string) {
	w.Helper()
	w.Eventually("refusal of "+pod, time.Minute, func() error {
		said := w.Refusals(pod)
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) }) {
			return fmt.Errorf("events so far: %q, want one with %q", said, text)
		}
		return nil
	})
}

// AtLeast waits until a counter has come so far.
func (w *World) AtLeast(what string, n int64, counter *atomic.Int64) {
	w.Helper()
	w.Eventually(what, time.Minute, func() error {
		if now := counter.Load(); now < n {
			return fmt.Errorf("%d so far, want %d", now, n)
		}
		return nil
	})
}

// Read reads a cluster as the commands do.
func Read(ctx context.Context, config *rest.Config) (*cluster.Objects, error) {
	client, err := cluster.NewClient(config)
	if err != nil {
		return nil, err
	}
	return client.Read(ctx, "")
}

// Objects reads the cluster.
func (w *World) Objects() *cluster.Objects {
	w.Helper()
	objects, err := Read(w.Ctx, w.REST())
	w.Must(err)
	return objects
}

// Snapshot reads the cluster, and the account of its cards.
func (w *World) Snapshot() *cluster.Snapshot {
	w.Helper()
	return w.Objects().Snapshot()
}

// Audit reads the cluster as "daybreak audit" does and fails when a card is allocated
// beyond what it has, or a pod's cards are unknown.
func (w *World) Audit() {
	w.Helper()
	snapshot := w.Snapshot()
	for _, note := range snapshot.Notes {
		if !strings.Contains(note, "settings are unknown") { // most tests have no manager
			w.Errorf("audit: %s", note)
		}
	}
	for _, v := range audit.Check(snapshot, time.Now()).Violations {
		w.Errorf("audit: %s: %s (pods %v)", v.Rule, v.Message, v.Pods)
	}
}

// CardsOf returns the indices of the cards that a bound pod holds.
func (w *World) CardsOf(p *corev1.Pod) []int {
	w.Helper()
	for _, n := range w.Snapshot().Nodes {
		for i := range n.Holdings() {
			if h := &n.Holdings()[i]; n.Name == p.Spec.NodeName && h.Holder == allocation.HolderOf(p) {
				return h.Cards().Indices()
			}
		}
	}
	w.GiveUp("pod " + p.Name + " holds nothing")
	return nil
}
