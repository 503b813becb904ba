package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// bindTimeout bounds one try.
	bindTimeout = 15 * time.Second
	// bindsAtOnce is how many Bindings may be at the API server at a time. A
	// backlog is decided on more quickly than it is written; when all of it is
	// sent at once, the API server refuses what its queues do not hold (429), and
	// both sides spend time on that. These are enough for 1 000 a second when each
	// takes 60 ms.
	bindsAtOnce = 64
)

var (
	errNotAssigned = errors.New("the pod is bound elsewhere")
	errChanged     = errors.New("the pod is being deleted, or asks for something else than when its cards were chosen")
)

// Bind writes the node and the cards in one call, under the node's lock where
// the vendor's plugin serves it.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	res, ok := p.shared.overlay.getReservation(pod.UID)
	if !ok {
		return fwk.NewStatus(fwk.Skip)
	}
	if err := p.takeLock(ctx, pod, nodeName); err != nil {
		return fwk.AsStatus(err)
	}
	b := binder{plugin: p, pod: pod, node: nodeName, annotations: res.annotations, version: p.latestVersion(pod)}
	if err := b.run(ctx); err != nil {
		return fwk.AsStatus(fmt.Errorf("bind to %s: %w", nodeName, err))
	}
	p.shared.figures.placed.Inc()
	p.shared.announcements.put(pod.UID, res.announcement())
	return nil
}

// latestVersion returns the newest version of the pod that the decision holds
// for. While a pod waited for its turn or its volumes its status may have
// changed: kube-scheduler itself notes there where it is about to be bound.
func (p *Plugin) latestVersion(pod *corev1.Pod) string {
	now, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil || !sameAsk(pod, now) {
		return pod.ResourceVersion // the API server will say what is wrong
	}
	return now.ResourceVersion
}

// binder is one Bind.
type binder struct {
	plugin      *Plugin
	pod         *corev1.Pod
	node        string
	annotations map[string]string
	version     string // of the pod, which the Binding holds for
}

// run sends the Binding until the answer is certain.
func (b *binder) run(ctx context.Context) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 2 * time.Second}
	unsure := false // an earlier try may have gone through
	for {
		err := b.send(ctx)
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err):
			done, err := b.afterConflict(ctx)
			if done {
				return err
			}
		case unsure && errors.Is(err, errStale): // the cards stay taken
		case !indefinite(err):
			return err
		default:
			unsure = true
		}
		klog.FromContext(ctx).V(2).Info("Binding is sent again", "pod", klog.KObj(b.pod), "node", b.node, "err", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.plugin.shared.clock.After(backoff.Step()):
		}
	}
}

// send sends the Binding once, in its turn, if this process may still decide.
func (b *binder) send(ctx context.Context) error {
	sending := b.plugin.shared.sending
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case sending <- struct{}{}:
		defer func() { <-sending }()
	}
	if err := b.plugin.shared.term.fresh(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	return b.plugin.handle.ClientSet().CoreV1().Pods(b.pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.pod.Namespace, Name: b.pod.Name,
			UID: b.pod.UID, ResourceVersion: b.version, Annotations: b.annotations,
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
}

// afterConflict looks at the pod after a 409: an earlier try may have gone
// through, the pod may be someone else's, or it was only changed in between, in
// which case the Binding is sent again for the newer version.
func (b *binder) afterConflict(ctx context.Context) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	now, err := b.plugin.handle.ClientSet().CoreV1().Pods(b.pod.Namespace).Get(ctx, b.pod.Name, metav1.GetOptions{})
	switch {
	case err != nil && indefinite(err):
		return false, nil
	case err != nil:
		return true, err
	case now.UID != b.pod.UID:
		return true, apierrors.NewNotFound(corev1.Resource("pods"), b.pod.Name)
	case now.Spec.NodeName == "" && now.DeletionTimestamp == nil && sameAsk(b.pod, now):
		b.version = now.ResourceVersion
		return false, nil
	case now.Spec.NodeName == b.node && carries(now, b.annotations):
		return true, nil
	case now.Spec.NodeName == "":
		return true, errChanged
	default:
		return true, errNotAssigned
	}
}

// carries reports whether the pod has all of the annotations.
func carries(pod *corev1.Pod, annotations map[string]string) bool {
	for key, value := range annotations {
		if got, ok := pod.Annotations[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// sameAsk reports whether the decision for one version of a pod holds for the
// other. Resources can't change before a pod is bound; annotations can.
func sameAsk(a, b *corev1.Pod) bool {
	for _, key := range wire.AskAnnotations() {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return true
}

// indefinite reports whether the request may have been carried out although an
// error came back.
func indefinite(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, errStale)
	}
	return status.Status().Code >= 500 || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}
