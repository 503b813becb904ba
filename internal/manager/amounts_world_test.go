package manager

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// amountsWorld is a cluster whose cards the webhook knows, with the accounts of its
// nodes.
type amountsWorld struct {
	*testing.T
	gputest.Mixture
	rules    webhook.Rules
	policies *policy.Evaluator
	// The nodes, and in the same order their accounts, empty and in some state of use.
	nodes       []*corev1.Node
	inventories []*inventory.Inventory
	empty, used []*ledger.Node
}

const unknownCard = 72 << 10

func newAmountsWorld(t *testing.T, seed uint64) *amountsWorld {
	w := &amountsWorld{T: t, Mixture: gputest.Mixture{Rand: gputest.Rand(seed)}}
	var objects []runtime.Object
	for i := range 2 + w.IntN(5) {
		name := fmt.Sprintf("n%d", i)
		n := gputest.ServedNode(name, 8, 8)
		w.State(n)
		facts := inventory.NodeObjects{Name: name, Node: n}
		if w.Often(90) {
			memories := []string{"16Gi", "32Gi", "48Gi", "64Gi", "80Gi"}[w.IntN(4):]
			sizes := make([]string, 1+w.IntN(8))
			for j := range sizes {
				sizes[j] = memories[w.IntN(2)] // some nodes have cards of two kinds
				w.Cards = append(w.Cards, fmt.Sprintf("%s-%d", name, j))
			}
			object := deviceOf(t, name, []string{"", "", "", "native", "sgpu", "shared"}[w.IntN(6)], sizes...)
			facts.Device = decoded(t, object)
			objects = append(objects, object)
		} else {
			n = gputest.MakeNode("gpu: 8", wire.AnnotationServedBy, wire.ServedByVendor)
			n.Name, facts.Node, facts.Vendor = name, n, true
			w.State(n)
		}
		objects = append(objects, n)
		inv := facts.Inventory()
		account := inv.NewNode()
		w.nodes, w.inventories, w.empty, w.used = append(w.nodes, n), append(w.inventories, inv), append(w.empty, account), append(w.used, account.Clone())
	}
	w.Cards = append(w.Cards, "GPU-of-another-node")
	w.rules = webhook.Rules{LargestCard: newCards(t, objects...).largest, CardMemory: unknownCard}
	w.fill()
	return w
}

func decoded(t *testing.T, object *unstructured.Unstructured) *v1alpha1.Device {
	t.Helper()
	device := cluster.DecodeDevice(object)
	if device.Err != nil {
		t.Fatal(device.Err)
	}
	return device.Device
}

// fill books some pods.
func (w *amountsWorld) fill() {
	for i, n := range w.used {
		for j := range w.IntN(12) {
			ask, _ := request.Read(w.pod())
			if ask == nil {
				continue
			}
			if offer, refusal := place.Fit(n, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
				_, err := n.Commit(offer, ledger.Holder(fmt.Sprintf("default/filler-%d-%d", i, j)), &ask.Request)
				gputest.Must(w, err)
			}
		}
	}
}

// forms are further ways to ask for cards, and not to.
var forms = []string{
	"", "cpu: 1", "sgpu: 0", "gpu: 1", "gpu: 3", "sgpu: 1", "sgpu: 2", "sgpu: 1, vcore: 0", "sgpu: 1, vcore: 30", "sgpu: 1, vcore: 100, vmemory: 4", "sgpu: 3, vmemory: 1",
	"sgpu: 1, vcore: 15, vmemory: 3", "sgpu: 1, vcore: 5, vmemory: 300Mi", "sgpu: 2, vcore: 25, vmemory: 5G",
	"koordinator.sh/gpu: 100", "koordinator.sh/gpu: 300", "koordinator.sh/gpu: 33", "gpu-memory-ratio: 200", "gpu-core: 7, gpu-memory-ratio: 13", "gpu.shared: 1, gpu-core: 40, gpu-memory: 1Gi",
	"gpu.shared: 2, gpu-core: 200, gpu-memory: 20Gi", "gpu-core: 100, gpu-memory-ratio: 50", "sgpu: 1, vmemory: 1Mi", "sgpu: 8, vmemory: 1Mi", "gpu-core: 100, gpu-memory: 1Gi",
}

// pod returns a pod with further containers, some of which have amounts already.
func (w *amountsWorld) pod() *corev1.Pod {
	pod := w.Pod("p")
	forged := func() string { return "daybreak-gpu.io/" + []string{"compute: 1", "memory: 1k", "cards: 9"}[w.IntN(3)] }
	draw := func() corev1.Container {
		words := []string{forms[w.IntN(len(forms))]}
		if w.Often(10) {
			words = append(words, forged())
		}
		limits := gputest.MakeResources(strings.Trim(strings.Join(words, ", "), ", "))
		c := corev1.Container{Name: fmt.Sprintf("more-%d", len(pod.Spec.Containers)+len(pod.Spec.InitContainers)), Resources: corev1.ResourceRequirements{Limits: limits}}
		if w.Often(20) {
			c.Resources = corev1.ResourceRequirements{Requests: limits}
		}
		return c
	}
	for w.Often(25) {
		pod.Spec.Containers = slices.Insert(pod.Spec.Containers, w.IntN(len(pod.Spec.Containers)+1), draw())
	}
	for w.Often(40) {
		c := draw()
		if w.Often(50) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// change changes one annotation by which what a pod asks for changes.
func (w *amountsWorld) change(pod *corev1.Pod) {
	key := wire.AskAnnotations()[w.IntN(len(wire.AskAnnotations()))]
	other := w.Pod("p").Annotations[key]
	if pod.Annotations = maps.Clone(pod.Annotations); pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	switch {
	case w.Often(40) && pod.Annotations[wire.AnnotationUseCards] != "":
		delete(pod.Annotations, wire.AnnotationUseCards)
	case w.Often(40) && key == wire.AnnotationClass:
		pod.Annotations[key] = string(gpu.Online)
	case other == "":
		delete(pod.Annotations, key)
	default:
		pod.Annotations[key] = other
	}
}

// denied reports whether the policies deny the change of a pod that waits.
func (w *amountsWorld) denied(was, pod *corev1.Pod) bool {
	w.Helper()
	raw := func(p *corev1.Pod) runtime.RawExtension {
		p = p.DeepCopy()
		p.APIVersion, p.Kind = "v1", "Pod"
		text, err := json.Marshal(p)
		gputest.Must(w, err)
		return runtime.RawExtension{Raw: text}
	}
	err := w.policies.Evaluate(w.Context(), &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default", Name: "p",
		Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: "jane"}, OldObject: raw(was), Object: raw(pod),
	})
	if err != nil && !apierrors.IsForbidden(err) {
		w.Fatal(err)
	}
	return err != nil
}

// newPolicies returns the policies of the chart.
func newPolicies(t *testing.T) *policy.Evaluator {
	t.Helper()
	manifests, err := policy.Guards(policy.Params{Namespace: "daybreak-system", Schedulers: []string{"scheduler"}})
	gputest.Must(t, err)
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	gputest.Must(t, namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	evaluator, err := policy.NewEvaluator(manifests, corelisters.NewNamespaceLister(namespaces), fake.NewClientset(), authorizerfactory.NewAlwaysDenyAuthorizer())
	gputest.Must(t, err)
	return evaluator
}
