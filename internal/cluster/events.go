package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Reasons of events that answers are made from.
const (
	// ReasonPreempted is on a pod that was evicted for another, which is the related
	// object.
	ReasonPreempted = "Preempted"
	// ReasonFailedCreate is on a controller whose pods are rejected.
	ReasonFailedCreate = "FailedCreate"
)

// reasonServerTooOld is on a pod of Daybreak whose API server is too old.
const reasonServerTooOld = "ServerTooOld"

// namespaceFile has the namespace of the pod that a process runs in.
var namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// reportOnOwnPod writes a warning on the pod that this process runs in, if it runs in
// one; a pod's host name is its name. A process that is started again and again writes
// it once.
func reportOnOwnPod(ctx context.Context, config *rest.Config, reason, message string) {
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return
	}
	name, err := os.Hostname()
	if err != nil {
		return
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	on := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: string(namespace), Name: name}
	if pod, err := client.CoreV1().Pods(on.Namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
		on.UID = pod.UID // kubectl describe looks for it
	}
	now := metav1.Now()
	_, err = client.CoreV1().Events(on.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace, Name: name + "." + strings.ToLower(reason)}, InvolvedObject: on,
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "daybreak"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		klog.FromContext(ctx).V(2).Info("Event not written", "reason", reason, "cause", err)
	}
}

// Event is what was reported about an object.
type Event struct {
	// Kind, Namespace, Name and UID are of the object, Related of the other one that
	// the event names.
	Kind, Namespace, Name string
	UID, Related          types.UID
	Reason, Message       string
	// Count is how often it happened, Last when it last did.
	Count int
	Last  time.Time
}

func eventOf(e *corev1.Event) Event {
	out := Event{
		Kind: e.InvolvedObject.Kind, Namespace: cmp.Or(e.InvolvedObject.Namespace, e.Namespace), Name: e.InvolvedObject.Name, UID: e.InvolvedObject.UID,
		Reason: e.Reason, Message: e.Message, Count: max(1, int(e.Count)), Last: e.LastTimestamp.Time,
	}
	if e.Related != nil {
		out.Related = e.Related.UID
	}
	if s := e.Series; s != nil {
		out.Count, out.Last = max(out.Count, int(s.Count)), s.LastObservedTime.Time
	}
	for _, at := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
		if out.Last.IsZero() {
			out.Last = at
		}
	}
	return out
}

// event takes in an Event of either group: they are the same objects.
func (r *decoder) event(text []byte, at string) error {
	var core corev1.Event
	var newer eventsv1.Event
	if err := json.Unmarshal(text, &core); err != nil {
		return fmt.Errorf("%s: Event: %w", at, plain(err))
	}
	if core.InvolvedObject.Kind == "" {
		if err := json.Unmarshal(text, &newer); err != nil {
			return fmt.Errorf("%s: Event: %w", at, plain(err))
		}
		core.InvolvedObject, core.Message = newer.Regarding, newer.Note
		core.Count, core.LastTimestamp = newer.DeprecatedCount, newer.DeprecatedLastTimestamp
	}
	r.objects.Events = append(r.objects.Events, eventOf(&core))
	return nil
}

// ReadEvents reads the events with this value of a field, of the first of the namespaces
// whose events the user may see, the latest first; the empty name is all of them. It
// returns none where the user may see none: events add to an answer, which does not
// depend on them.
func (c *Client) ReadEvents(ctx context.Context, field, value string, namespaces ...string) ([]Event, error) {
	for _, namespace := range namespaces {
		items, err := list[*corev1.Event](ctx, func(ctx context.Context, o metav1.ListOptions) (*corev1.EventList, error) {
			o.FieldSelector = fields.OneTermEqualSelector(field, value).String()
			return c.typed.CoreV1().Events(namespace).List(ctx, o)
		})
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, listing("events", err)
		}
		events := make([]Event, len(items))
		for i := range items {
			events[i] = eventOf(items[i])
		}
		sortEvents(events)
		return events, nil
	}
	return nil, nil
}

// sortEvents puts the latest first.
func sortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return b.Last.Compare(a.Last) })
}
