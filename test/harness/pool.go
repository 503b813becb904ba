package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Pool keeps control planes running between tests: starting one takes longer than most
// tests do. A test has its cluster for itself, and the next one finds it as a new one is.
type Pool struct {
	// Bin is the folder of the binaries.
	Bin string

	mu   sync.Mutex
	idle []*kept
}

// kept is a control plane that outlives tests.
type kept struct {
	*local.Cluster
	client    kubernetes.Interface
	metadata  metadata.Interface
	resources []schema.GroupVersionResource
	// first is what a new cluster has.
	first map[types.UID]object
	// lost says that something of it has to be installed again.
	lost bool
}

// object is what a cluster has, by what it is.
type object struct {
	of schema.GroupVersionResource
	metav1.ObjectMeta
}

// New returns a cluster as [New] does, which an earlier test may have had.
func (p *Pool) New(t testing.TB) *World {
	t.Helper()
	k, err := p.take()
	gputest.Must(t, err)
	t.Cleanup(func() {
		err := errors.New("the test has failed")
		if !t.Failed() {
			err = k.wipe()
		}
		if err != nil {
			t.Logf("no other test gets this cluster: %v", err)
			k.end()
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, k)
	})
	// Logs and further kubeconfigs are the test's.
	c := *k.Cluster
	c.Dir = t.TempDir()
	files, err := filepath.Glob(filepath.Join(k.Dir, "*.kubeconfig"))
	err = errors.Join(err, os.Mkdir(filepath.Join(c.Dir, "logs"), 0o755))
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(c.Dir, filepath.Base(file)), text, 0o600))
	}
	gputest.Must(t, err)
	return Of(t, p.Bin, &c)
}

// Stop stops the clusters, after the last test.
func (p *Pool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.idle {
		k.end()
	}
	p.idle = nil
}

func (p *Pool) take() (*kept, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		defer p.mu.Unlock()
		k := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return k, nil
	}
	p.mu.Unlock()
	dir, err := os.MkdirTemp("", "daybreak-world-")
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // of no test
	c, err := local.Start(ctx, local.Config{Dir: dir, Executable: filepath.Join(p.Bin, "playground")})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	k := &kept{Cluster: c}
	if err := k.open(ctx); err != nil {
		k.end()
		return nil, err
	}
	return k, nil
}

func (k *kept) end() {
	k.Stop()
	_ = os.RemoveAll(k.Dir)
}

// open installs what tests find in a new cluster, and notes all that it has.
func (k *kept) open(ctx context.Context) error {
	if err := k.Install(ctx); err != nil {
		return err
	}
	var err error
	if k.client, err = kubernetes.NewForConfig(k.REST()); err != nil {
		return err
	}
	if k.metadata, err = metadata.NewForConfig(k.REST()); err != nil {
		return err
	}
	lists, err := discovery.ServerPreferredResources(k.client.Discovery())
	if err != nil {
		return err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && !ofServers(gv.Group, r.Name) {
				k.resources = append(k.resources, gv.WithResource(r.Name))
			}
		}
	}
	return machine.Until(ctx, time.Minute, func() error { return k.note(ctx) })
}

// note takes what the cluster has for what a new one has.
func (k *kept) note(ctx context.Context) error {
	objects, err := k.list(ctx)
	if err != nil {
		return err
	}
	k.first = map[types.UID]object{}
	for _, o := range objects {
		k.first[o.UID] = o
	}
	for _, namespace := range []string{metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if !k.isFirst(namespace) {
			return fmt.Errorf("namespace %s is not there yet", namespace)
		}
	}
	return nil
}

// ofServers reports whether only Kubernetes itself writes such objects, or whether they
// are others under a second name.
func ofServers(group, resource string) bool {
	switch resource {
	case "endpoints", "endpointslices", "ipaddresses", "servicecidrs":
		return true
	}
	return group == "flowcontrol.apiserver.k8s.io" || group == "apiregistration.k8s.io" || group == "events.k8s.io"
}

func (k *kept) list(ctx context.Context) (all []object, err error) {
	for _, of := range k.resources {
		list, err := k.metadata.Resource(of).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", of.Resource, err)
		}
		for i := range list.Items {
			all = append(all, object{of, list.Items[i].ObjectMeta})
		}
	}
	return all, nil
}

// wipe makes the cluster what it was when it was new, or reports why it can't.
func (k *kept) wipe() error {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var spoiled string
	err := machine.Until(ctx, patience, func() error {
		objects, err := k.list(ctx)
		if err != nil {
			return err
		}
		var left []object
		if left, spoiled = k.compare(objects); spoiled != "" || len(left) == 0 {
			return nil
		}
		slices.SortStableFunc(left, func(a, b object) int { return cmp.Compare(a.turn(), b.turn()) })
		for _, o := range left {
			err = errors.Join(err, k.remove(ctx, o))
		}
		return cmp.Or(err, fmt.Errorf("%d objects are left, such as %s %s", len(left), left[0].of.Resource, left[0].Name))
	})
	switch {
	case spoiled != "":
		return errors.New(spoiled)
	case err != nil:
		return err
	}
	if k.lost {
		if err := errors.Join(k.Install(ctx), k.note(ctx)); err != nil {
			return err
		}
		k.lost = false
	}
	return machine.Until(ctx, patience, func() error { return k.admitsAll(ctx) })
}

// compare returns what a new cluster does not have, or why this one can't become one.
func (k *kept) compare(objects []object) (left []object, spoiled string) {
	there := map[types.UID]bool{}
	for _, o := range objects {
		was, ok := k.first[o.UID]
		there[o.UID] = true
		switch {
		case ok && was.isKept() && o.isChanged(was):
			return nil, fmt.Sprintf("the test changed %s %s", o.of.Resource, o.Name)
		case ok && o.of.Resource == "secrets" && o.ResourceVersion != was.ResourceVersion:
			left = append(left, o) // the manager wrote its certificates to it
		case ok || k.cameLate(o):
		case slices.Contains([]string{"customresourcedefinitions", "resourcequotas", "limitranges"}, o.of.Resource):
			// The API server goes on with what it remembers of them for a while.
			return nil, fmt.Sprintf("the test left %s %s", o.of.Resource, o.Name)
		default:
			left = append(left, o)
		}
	}
	for uid, was := range k.first {
		switch {
		case there[uid]:
		case was.isKept():
			return nil, fmt.Sprintf("the test deleted %s %s", was.of.Resource, was.Name)
		case was.of.Resource == "secrets":
			k.lost = true
		}
	}
	return left, ""
}

// cameLate reports whether Kubernetes itself creates such an object a moment after it
// started.
func (k *kept) cameLate(o object) bool {
	switch o.of.Resource {
	case "serviceaccounts", "configmaps":
		return o.Namespace == metav1.NamespaceSystem || o.Name == "kube-root-ca.crt" && k.isFirst(o.Namespace) || o.Name == "default" && k.isFirst(o.Namespace)
	case "leases":
		return o.Namespace == metav1.NamespaceSystem && strings.HasPrefix(o.Name, "apiserver-")
	}
	return false
}

func (k *kept) isFirst(namespace string) bool {
	for _, o := range k.first {
		if o.of.Resource == "namespaces" && o.Name == namespace {
			return true
		}
	}
	return false
}

// isKept reports whether a cluster without the object, or with another state of it, is
// not as it was.
func (o object) isKept() bool {
	switch o.of.Resource {
	case "namespaces", "customresourcedefinitions":
		return true
	}
	// Kubernetes itself writes on its own roles.
	return o.of.Group == "rbac.authorization.k8s.io" && strings.HasPrefix(o.Name, "daybreak")
}

func (o object) isChanged(was object) bool {
	if o.of.Resource == "customresourcedefinitions" { // with a status
		return o.Generation != was.Generation
	}
	return o.ResourceVersion != was.ResourceVersion
}

// turn is when an object is deleted: first what keeps others from being deleted,
// or creates them again.
func (o object) turn() int {
	switch o.of.Group {
	case "admissionregistration.k8s.io":
		// When the API server has forgotten the binding of the policy of pods, which goes
		// last, it has forgotten the others.
		if o.of.Resource == "validatingadmissionpolicybindings" && o.Name == "daybreak-pods" {
			return 1
		}
		return 0
	case "apps", "batch":
		return 2
	}
	if o.of.Resource == "namespaces" {
		return 4
	}
	return 3
}

func (k *kept) remove(ctx context.Context, o object) error {
	client := k.metadata.Resource(o.of).Namespace(o.Namespace)
	err := client.Delete(ctx, o.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), PropagationPolicy: new(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &o.UID},
	})
	if err == nil && o.of.Resource == "namespaces" {
		// What is in it goes here; the controller would wait for five seconds.
		_, err = k.client.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, metav1.UpdateOptions{})
	}
	if err == nil && len(o.Finalizers) > 0 && o.DeletionTimestamp != nil {
		_, err = client.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// admitsAll returns an error while the API server still has policies or webhooks.
func (k *kept) admitsAll(ctx context.Context) error {
	one := corev1.ResourceList{wire.ResourceSGPU: resource.MustParse("1")}
	_, err := k.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{wire.AnnotationAllocated: "[]"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: one, Requests: one}}}},
	}, DryRun)
	return err
}
