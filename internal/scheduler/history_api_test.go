package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// The kinds of objects that are watched.
const (
	kindPod    = "pod"
	kindNode   = "node"
	kindDevice = "device"
	kindQuota  = "quota"
)

// kinds has all of them, in the order in which they are looked at.
var kinds = []string{kindPod, kindNode, kindDevice, kindQuota}

// object is what the model of the API server keeps. Objects are never changed
// once they are stored.
type object interface {
	metav1.Object
	runtime.Object
}

// change is one entry of the log from which watches are served. Old is nil when
// an object comes, now when it goes.
type change struct {
	version  uint64
	old, now object
	// unseen is true for an object of which a list shows that it is gone.
	unseen bool
}

// modelServer is the model of the API server: one store with one version for
// everything, a log for the watches, and the requests that were sent to it and
// not yet answered. Only the driver touches the store. Requests are put down by
// the goroutines of the schedulers and wait until the driver picks them.
type modelServer struct {
	version uint64
	objects map[string]map[string]object // by kind and name
	log     map[string][]change          // by kind
	lease   *resourcelock.LeaderElectionRecord
	leaseAt uint64 // the lease's version
	// everHad has, of each node, every card that it ever published.
	everHad map[string]map[string]bool
	// untouchable are pods whose status can't be patched while they wait: a
	// webhook is down.
	untouchable map[string]bool
	// budgets has the most that each quota ever allowed.
	budgets map[string]int64
	// memory is what each card of a node has.
	memory  map[string]gpu.MiB
	began   time.Time
	started int // pods that were bound, so that no two started at once

	mu      sync.Mutex
	waiting []*apiRequest
	late    []*apiRequest // their clients gave up, but they may still arrive
}

func newModelServer() *modelServer {
	a := &modelServer{
		began: time.Now(), version: 100, objects: map[string]map[string]object{}, log: map[string][]change{},
		everHad: map[string]map[string]bool{}, untouchable: map[string]bool{},
		budgets: map[string]int64{}, memory: map[string]gpu.MiB{},
	}
	for _, kind := range kinds {
		a.objects[kind] = map[string]object{}
	}
	return a
}

// uptime is a clock that no machine's suspension stops.
func (a *modelServer) uptime() time.Duration { return time.Since(a.began) }

// names returns the names of all objects of the kind in order.
func (a *modelServer) names(kind string) []string { return slices.Sorted(maps.Keys(a.objects[kind])) }

// changes returns how many changes there were but those of the lease.
func (a *modelServer) changes() (n int) {
	for _, kind := range kinds {
		n += len(a.log[kind])
	}
	return n
}

func (a *modelServer) pod(name string) *corev1.Pod {
	pod, _ := a.objects[kindPod][name].(*corev1.Pod)
	return pod
}

func (a *modelServer) node(name string) *corev1.Node {
	node, _ := a.objects[kindNode][name].(*corev1.Node)
	return node
}

func (a *modelServer) device(name string) *device {
	dev, _ := a.objects[kindDevice][name].(*device)
	return dev
}

// put stores a new version of the object, which belongs to the store from then
// on.
func (a *modelServer) put(kind string, now object) {
	a.version++
	now.SetResourceVersion(strconv.FormatUint(a.version, 10))
	old := a.objects[kind][now.GetName()]
	a.objects[kind][now.GetName()] = now
	switch {
	case old != nil && isShown(old) && !isShown(now):
		a.log[kind] = append(a.log[kind], change{version: a.version, old: now})
	case old != nil && isShown(old):
		a.log[kind] = append(a.log[kind], change{version: a.version, old: old, now: now})
	case isShown(now):
		a.log[kind] = append(a.log[kind], change{version: a.version, now: now})
	}
}

// isShown reports whether kube-scheduler's informers show the object: they leave
// out pods that came to their end.
func isShown(o object) bool {
	pod, ok := o.(*corev1.Pod)
	return !ok || pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// remove takes the object out of the store. As in Kubernetes, a watch shows the
// object with the version of its end.
func (a *modelServer) remove(kind, name string) {
	old := a.objects[kind][name]
	if old == nil {
		return
	}
	a.version++
	delete(a.objects[kind], name)
	last, ok := old.DeepCopyObject().(object)
	if dev, is := old.(*device); is {
		kept := *dev
		last, ok = &kept, true
	}
	if !ok || !isShown(old) {
		return
	}
	last.SetResourceVersion(strconv.FormatUint(a.version, 10))
	a.log[kind] = append(a.log[kind], change{version: a.version, old: last})
}

var modelPodResource = schema.GroupResource{Resource: "pods"}

// bind is the subresource binding of pods.
func (a *modelServer) bind(b *corev1.Binding) error {
	pod := a.pod(b.Name)
	switch {
	case pod == nil:
		return apierrors.NewNotFound(modelPodResource, b.Name)
	case b.UID != "" && b.UID != pod.UID, b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(modelPodResource, b.Name, errors.New("the precondition does not hold"))
	case pod.DeletionTimestamp != nil:
		return apierrors.NewConflict(modelPodResource, b.Name, errors.New("the pod is being deleted"))
	case pod.Spec.NodeName != "":
		return apierrors.NewConflict(modelPodResource, b.Name, errors.New("the pod is already assigned"))
	}
	now := pod.DeepCopy()
	now.Spec.NodeName = b.Target.Name
	for key, value := range b.Annotations {
		metav1.SetMetaDataAnnotation(&now.ObjectMeta, key, value)
	}
	a.started++
	now.Status.StartTime = &metav1.Time{Time: start.Add(time.Duration(a.started) * time.Second)}
	a.put(kindPod, now)
	return nil
}

// patchStatus is a strategic merge patch of a pod's status. What changes nothing
// makes no new version.
func (a *modelServer) patchStatus(name string, patch []byte) (*corev1.Pod, error) {
	pod := a.pod(name)
	if pod == nil {
		return nil, apierrors.NewNotFound(modelPodResource, name)
	}
	if a.untouchable[name] && pod.Spec.NodeName == "" {
		return nil, apierrors.NewInternalError(errors.New("failed calling webhook: connection refused"))
	}
	var precondition struct {
		Metadata struct {
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch, &precondition); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if m := precondition.Metadata; m.UID != "" && m.UID != string(pod.UID) || m.ResourceVersion != "" && m.ResourceVersion != pod.ResourceVersion {
		return nil, apierrors.NewConflict(modelPodResource, name, errors.New("the precondition does not hold"))
	}
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var after corev1.Pod
	if err := json.Unmarshal(merged, &after); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	now := pod.DeepCopy()
	now.Status = after.Status
	if apiequality.Semantic.DeepEqual(pod.Status, now.Status) {
		return pod, nil
	}
	a.put(kindPod, now)
	return now, nil
}

// deletePod deletes a pod: at once if it runs nowhere and has no finalizer, else when
// its node has ended it, or whoever set the finalizer is done.
func (a *modelServer) deletePod(name string, uid string) error {
	pod := a.pod(name)
	switch {
	case pod == nil:
		return apierrors.NewNotFound(modelPodResource, name)
	case uid != "" && uid != string(pod.UID):
		return apierrors.NewConflict(modelPodResource, name, errors.New("the precondition does not hold"))
	case pod.Spec.NodeName == "" && len(pod.Finalizers) == 0:
		a.remove(kindPod, name)
	case pod.DeletionTimestamp == nil:
		now := pod.DeepCopy()
		now.DeletionTimestamp = &metav1.Time{Time: start}
		a.put(kindPod, now)
	}
	return nil
}

// writeLease creates or updates the lease if it is still what the writer read.
func (a *modelServer) writeLease(r resourcelock.LeaderElectionRecord, read uint64) (uint64, error) {
	if read != a.leaseAt {
		return 0, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "lease", errors.New("the lease was written by someone else"))
	}
	a.version++
	a.lease, a.leaseAt = &r, a.version
	return a.leaseAt, nil
}

// apiRequest is one request of a scheduler to the API server.
type apiRequest struct {
	id   string // the same whenever the history is played
	by   *process
	verb string
	name string // of the object
	ctx  context.Context
	sent time.Time
	do   func() (any, error)

	executed bool
	result   any
	err      error
	done     chan struct{} // closed with the answer
}

// The verbs of requests. Those of kube-scheduler itself are apart: it sends them
// again after random waits when the answer is one of some codes.
const (
	verbBind   = "bind"
	verbTouch  = "touch"
	verbStatus = "status"
	verbGet    = "get"
	verbList   = "list"
	verbDelete = "delete"
	verbLease  = "lease"

	leaseName = "lease"
)

// errLost is what a client sees when no answer comes.
var errLost = errors.New("http2: client connection lost")

// ask puts a request down and waits for the answer.
func (a *modelServer) ask(ctx context.Context, by *process, verb, name string, do func() (any, error)) (any, error) {
	a.mu.Lock()
	if by.dead.Load() {
		a.mu.Unlock()
		return nil, errLost
	}
	by.requests[verb+name]++
	r := &apiRequest{
		id: fmt.Sprintf("%s/%s/%s/%d", by.identity, verb, name, by.requests[verb+name]),
		by: by, verb: verb, name: name, ctx: ctx, sent: time.Now(), do: do, done: make(chan struct{}),
	}
	a.waiting = append(a.waiting, r)
	a.mu.Unlock()
	<-r.done
	return r.result, r.err
}

// pending returns the requests that wait, in an order that does not depend on
// that of goroutines.
func (a *modelServer) pending() []*apiRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.waiting, func(x, y *apiRequest) int { return cmp.Or(x.sent.Compare(y.sent), strings.Compare(x.id, y.id)) })
	return slices.Clone(a.waiting)
}

// find returns the request, which may be late.
func (a *modelServer) find(id string) (r *apiRequest, late bool) {
	for _, r := range a.pending() {
		if r.id == id {
			return r, false
		}
	}
	for _, r := range a.late {
		if r.id == id {
			return r, true
		}
	}
	return nil, false
}

// execute carries the request out.
func (r *apiRequest) execute() {
	if !r.executed {
		r.executed = true
		r.result, r.err = r.do()
	}
}

// answer lets the client go on. A request that was not carried out stays on its
// way when keep says so.
func (a *modelServer) answer(r *apiRequest, keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.waiting, r)
	if at < 0 {
		return // its client has given up
	}
	a.waiting = slices.Delete(a.waiting, at, at+1)
	close(r.done)
	if keep && !r.executed && r.verb != verbGet && r.verb != verbList {
		a.late = append(a.late, &apiRequest{id: r.id, by: r.by, verb: r.verb, name: r.name, sent: r.sent, do: r.do})
	}
}

// dropLate forgets a request on its way.
func (a *modelServer) dropLate(r *apiRequest) {
	a.late = slices.DeleteFunc(a.late, func(other *apiRequest) bool { return other == r })
}

// faults are the answers with which the API server turns a request away.
var faults = map[string]func(r *apiRequest) error{
	"401": func(*apiRequest) error { return apierrors.NewUnauthorized("the token is not known yet") },
	"403": func(r *apiRequest) error {
		return apierrors.NewForbidden(modelPodResource, r.name, errors.New("the roles are not known yet"))
	},
	"400":  func(*apiRequest) error { return apierrors.NewBadRequest("no such version") },
	"422":  func(r *apiRequest) error { return apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, r.name, nil) },
	"409":  func(r *apiRequest) error { return apierrors.NewConflict(modelPodResource, r.name, errors.New("busy")) },
	"429":  func(*apiRequest) error { return apierrors.NewTooManyRequests("too many requests", 1) },
	"500":  func(*apiRequest) error { return apierrors.NewInternalError(errors.New("etcdserver: leader changed")) },
	"503":  func(*apiRequest) error { return apierrors.NewServiceUnavailable("shutting down") },
	"504":  func(*apiRequest) error { return apierrors.NewTimeoutError("the request did not complete in time", 1) },
	"lost": func(*apiRequest) error { return errLost },
}
