package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// bindTimeout bounds one try.
	bindTimeout = 15 * time.Second
	// reportDoubt is after what time an event reports a Binding in doubt.
	reportDoubt = 30 * time.Second
)

var (
	errNotAssigned = errors.New("the pod is bound elsewhere")
	errChanged     = errors.New("the pod is being deleted, or asks for something else than when its cards were chosen")
)

// Bind writes the node and the cards in one call, under the node's lock where
// the vendor's plugin serves it.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	res := p.shared.pods.claimOf(pod.UID, reservedClaim)
	if res == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if err := p.takeLock(ctx, pod, nodeName); err != nil {
		return fwk.AsStatus(err)
	}
	version, err := p.latestVersion(ctx, pod)
	if err == nil {
		b := binder{plugin: p, pod: pod, node: nodeName, annotations: res.annotations, version: version}
		err = b.run(ctx)
	}
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("bind to %s: %w", nodeName, err))
	}
	p.shared.metrics.placed.Inc()
	p.shared.pods.putBindNote(pod.UID, res.bindNote())
	return nil
}

// latestVersion returns the newest version of the pod that the decision holds
// for. While a pod waited for its turn or its volumes its status may have
// changed: kube-scheduler itself notes there where it is about to be bound. A
// version that another scheduler process has touched is not for this one.
func (p *Plugin) latestVersion(ctx context.Context, pod *corev1.Pod) (string, error) {
	now, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil || !sameAsk(pod, now) {
		now = pod // the API server will say what is wrong
	}
	if p.shared.term.foreign(now) {
		return "", p.touchBack(ctx, now)
	}
	return now.ResourceVersion, nil
}

// touchBack returns the error of a Bind of a pod that another process has touched.
// If this process certainly leads, an earlier leader's touch arrived late: the pod
// is touched again, so that the next Bind of it succeeds.
func (p *Plugin) touchBack(ctx context.Context, now *corev1.Pod) error {
	if p.shared.term.fresh() != nil {
		return errTouched
	}
	patch, err := allocation.TermPatch(now, now.ResourceVersion, p.shared.term.identity, "")
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, bindTimeout)
		defer cancel()
		_, err = p.handle.ClientSet().CoreV1().Pods(now.Namespace).Patch(ctx, now.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		return fmt.Errorf("%w; it could not be touched again: %w", errTouched, err)
	}
	return errTouched
}

// binder is one Bind.
type binder struct {
	plugin      *Plugin
	pod         *corev1.Pod
	node        string
	annotations map[string]string
	version     string // of the pod, which the Binding holds for

	// doubt is set while a Binding for that version may have been carried out,
	// or may yet be; since is when that began, and reported whether an event was
	// written about it. A Binding can only be carried out while the pod is at the
	// Binding's version.
	doubt    bool
	since    time.Time
	reported bool
}

// run sends the Binding until it is known what became of it.
func (b *binder) run(ctx context.Context) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 2 * time.Second}
	defer b.settle()
	for {
		done, err := b.try(ctx)
		if done {
			return err
		}
		klog.FromContext(ctx).V(2).Info("Binding is sent again", "pod", klog.KObj(b.pod), "node", b.node, "err", err)
		b.report(err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.plugin.shared.clock.After(backoff.Step()):
		}
	}
}

// try sends the Binding once and reports whether it is known what became of it.
// Then nothing is under way any more, and the cards are the pod's or free.
func (b *binder) try(ctx context.Context) (done bool, err error) {
	tries, err := b.send(ctx)
	switch {
	case err == nil:
		return true, nil
	case indefinite(err):
		b.question()
		return false, err
	case tries > 1: // an earlier answer was one that client-go does not return
		b.question()
	}
	if b.doubt || apierrors.IsConflict(err) {
		return b.look(ctx, err)
	}
	return true, err
}

// send sends the Binding once, in its turn, if this process may still decide. It
// returns how often client-go has sent it.
func (b *binder) send(ctx context.Context) (tries int, err error) {
	limit, clock := b.plugin.shared.bindLimit, b.plugin.shared.clock
	if err := limit.acquire(ctx); err != nil {
		return 0, err
	}
	start := clock.Now()
	defer func() { limit.release(clock.Since(start), tries) }()
	if err := b.plugin.shared.term.fresh(); err != nil {
		return 0, err
	}
	counter, ctx := countTries(ctx)
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	err = b.pods().Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.pod.Namespace, Name: b.pod.Name,
			UID: b.pod.UID, ResourceVersion: b.version, Annotations: b.annotations,
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
	return int(counter.Load()), err
}

func (b *binder) pods() corev1client.PodInterface {
	return b.plugin.handle.ClientSet().CoreV1().Pods(b.pod.Namespace)
}

// look reads the pod after the given answer to a Binding, from etcd: an earlier
// try may have been carried out, the pod may be someone else's, or it was only
// changed in between, in which case the Binding is sent again for the newer
// version.
func (b *binder) look(ctx context.Context, answer error) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	now, err := b.pods().Get(ctx, b.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, err
	case err != nil:
		return !b.doubt && !indefinite(err), err
	case now.UID != b.pod.UID:
		return true, apierrors.NewNotFound(corev1.Resource("pods"), b.pod.Name)
	case now.Spec.NodeName == b.node && carries(now, b.annotations):
		return true, nil
	case now.Spec.NodeName != "":
		return true, errNotAssigned
	}
	if b.doubt && now.ResourceVersion == b.version {
		if now, err = b.touch(ctx); err != nil {
			return false, err
		}
	}
	b.settle() // the pod is past the version of every Binding that was sent
	switch {
	case b.plugin.shared.term.foreign(now):
		return true, b.plugin.touchBack(ctx, now)
	case now.DeletionTimestamp != nil || !sameAsk(b.pod, now):
		return true, errChanged
	case !apierrors.IsConflict(answer):
		return true, answer
	}
	b.version = now.ResourceVersion
	return false, answer
}

// touch makes a newer version of the pod, for which no Binding was sent. The
// version in the message makes sure that it changes.
func (b *binder) touch(ctx context.Context) (*corev1.Pod, error) {
	patch, err := allocation.TermPatch(b.pod, b.version, b.plugin.shared.term.identity, "after version "+b.version)
	if err != nil {
		return nil, err
	}
	return b.pods().Patch(ctx, b.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// question notes that a Binding may be carried out without this process knowing.
func (b *binder) question() {
	if !b.doubt {
		b.doubt, b.since = true, b.plugin.shared.clock.Now()
		b.plugin.shared.metrics.inDoubt.Inc()
	}
}

// settle notes that no Binding is in doubt.
func (b *binder) settle() {
	if b.doubt {
		b.doubt = false
		b.plugin.shared.metrics.inDoubt.Dec()
	}
}

// report writes an event, once, when a Binding has been in doubt for long.
func (b *binder) report(err error) {
	if !b.doubt || b.reported || b.plugin.shared.clock.Since(b.since) < reportDoubt {
		return
	}
	b.reported = true
	b.plugin.handle.EventRecorder().Eventf(b.pod, nil, corev1.EventTypeWarning, "BindingInDoubt", "Binding",
		"not known whether the pod is bound to %s, its cards stay reserved there: %v", b.node, err)
}

// countTries returns a counter of the times a request is sent with the context.
// client-go itself sends a request again after some answers, and returns the last
// one only.
func countTries(ctx context.Context) (*atomic.Int32, context.Context) {
	tries := new(atomic.Int32)
	return tries, httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { tries.Add(1) }})
}

// carries reports whether the pod has all of the annotations.
func carries(pod *corev1.Pod, annotations map[string]string) bool {
	return has(pod, annotations, func(string) bool { return true })
}

// has reports whether the pod has all of the annotations that count.
func has(pod *corev1.Pod, annotations map[string]string, counts func(key string) bool) bool {
	for key, value := range annotations {
		if got, ok := pod.Annotations[key]; counts(key) && (!ok || got != value) {
			return false
		}
	}
	return true
}

// sameAsk reports whether the decision for one version of a pod holds for the
// other. Resources can't change before a pod is bound; annotations can.
func sameAsk(a, b *corev1.Pod) bool {
	return !slices.ContainsFunc(wire.AskAnnotations(), func(key string) bool { return a.Annotations[key] != b.Annotations[key] })
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
