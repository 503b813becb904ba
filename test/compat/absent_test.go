package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// absence is a cluster of a version without policies, whose manager comes and goes.
type absence struct {
	*harness.World
	// kubelet is the kubelet of n1.
	kubelet       kubernetes.Interface
	devices       dynamic.ResourceInterface
	address, file string
	// conditions reports whether the server's webhooks have conditions.
	conditions bool
}

// TestManagerAbsent: where the manager evaluates the policies, forged writes are
// rejected with the sentences of the policies while it runs; while none runs, pods
// without cards do not wait for it, and pods with cards run on, end and are deleted.
func TestManagerAbsent(t *testing.T) {
	folder := os.Getenv("COMPAT_BIN")
	for server := range strings.FieldsSeq(os.Getenv("COMPAT_SERVERS")) {
		minor, err := strconv.Atoi(strings.TrimPrefix(server, "1."))
		if err != nil || minor >= 30 {
			continue // it has policies of its own
		}
		t.Run(server, func(t *testing.T) {
			cfg := local.Config{}
			harness.UseBinaries(&cfg, filepath.Join(folder, "compat", server))
			a := &absence{conditions: minor >= 28, World: harness.New(t, folder, cfg)}
			a.install()
			manager := a.start()
			a.withManager()
			job := a.job()
			a.pod("runs", "default", "sgpu: 1")
			a.pod("waits", "default", "sgpu: 1")
			a.pod("ordinary", "default", "cpu: 1")
			manager.Stop()
			a.withoutManager()
			a.jobEnds(job)
			a.start()
			a.withoutAmounts()
		})
	}
}

func (a *absence) install() {
	a.Helper()
	a.address = a.FreeAddress()
	params := a.Policies()
	params.NoMatchConditions = !a.conditions
	a.file = a.Validate(params, a.address)
	a.kubelet = a.ClientOf(a.ConfigAs("system:node:n1", "system:nodes", "system:masters"))
	a.devices = a.Devices(a.REST())
	for _, name := range []string{"n1", "n2"} {
		_, err := a.Client.CoreV1().Nodes().Create(a.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		a.Must(err)
	}
	a.Namespace("default", nil)
}

// start starts a manager and returns when the API server gets its answers.
func (a *absence) start() *harness.Manager {
	a.Helper()
	m := a.Manager("manager", manager.Config{Admission: manager.Admission{Address: a.address, Policies: a.file}})
	a.Eventually("the manager evaluates the policies", patience, func() error {
		forged := gputest.MakePod("forged").App("cpu: 1").Annotate(wire.AnnotationAllocated, "[]").Obj()
		forged.Spec.Containers[0].Image = "none"
		_, err := a.Client.CoreV1().Pods("default").Create(a.Ctx, forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return denied(err, "which cards a pod holds is written by the scheduler alone: leave it out")
	})
	return m
}

// denied returns nil if the error is that of a policy with the sentence.
func denied(err error, sentence string) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-") || !strings.HasSuffix(err.Error(), sentence) {
		return fmt.Errorf("got %w, want %s", errors.Join(err), sentence)
	}
	return nil
}

// pod creates a pod, bound to n1.
func (a *absence) pod(name, namespace, limits string) *corev1.Pod {
	a.Helper()
	p := gputest.MakePod(name).App(limits).Obj()
	p.Namespace, p.Spec.Containers[0].Image = namespace, "none"
	made, err := a.Client.CoreV1().Pods(namespace).Create(a.Ctx, p, metav1.CreateOptions{})
	a.Must(err)
	a.bind(made)
	return made
}

func (a *absence) bind(p *corev1.Pod) {
	a.Helper()
	a.Must(a.Client.CoreV1().Pods(p.Namespace).Bind(a.Ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
	}, metav1.CreateOptions{}))
}

func setAnnotation(key, value string) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		panic(err)
	}
	return text
}

func (a *absence) patchPod(client kubernetes.Interface, name string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods("default").Patch(a.Ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

func (a *absence) patchNode(client kubernetes.Interface, name string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(a.Ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

func (a *absence) device(name, vendor string) error {
	_, err := a.devices.Create(a.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Device", "metadata": map[string]any{"name": name, "labels": map[string]any{wire.LabelVendor: vendor}},
		"spec": map[string]any{"devices": []any{map[string]any{"type": "gpu", "id": "GPU-1", "minor": int64(0), "health": true}}},
	}}, metav1.CreateOptions{})
	return err
}

// withManager: what is no forgery passes. TestServers plays the table of forged
// writes on the same servers.
func (a *absence) withManager() {
	a.Helper()
	victim := a.pod("victim", "default", "sgpu: 1")
	if victim.Labels[wire.LabelAdmitted] != "true" {
		a.Errorf("labels %v", victim.Labels)
	}
	a.pod("unlabelled", "default", "cpu: 1")
	own := a.ClientOf(a.AgentOf("n1"))
	for name, err := range map[string]error{
		"an agent, its own node":  a.patchNode(own, "n1", setAnnotation(wire.AnnotationNodeCards, "[]")),
		"the hand-over of a node": a.patchNode(a.Client, "n1", setAnnotation(wire.AnnotationServedBy, wire.ServedByVendor)),
		"kubelet's status":        a.ready("victim"),
		"another vendor's Device": a.device("n1", "nvidia"),
	} {
		if err != nil {
			a.Errorf("%s: %v", name, err)
		}
	}
}

// withoutAmounts: where quotas must hold, a pod with cards that no manager wrote the
// amounts on is rejected, and no other.
func (a *absence) withoutAmounts() {
	a.Helper()
	ctx := a.Ctx
	_, err := a.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", Labels: map[string]string{wire.LabelQuota: wire.QuotaEnforced},
	}}, metav1.CreateOptions{})
	a.Must(err)
	a.Must(a.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, policy.Name, metav1.DeleteOptions{}))
	create := func(namespace, limits string) error {
		p := gputest.MakePod("unmetered").App(limits).Obj()
		p.Namespace, p.Spec.Containers[0].Image = namespace, "none"
		_, err := a.Client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	a.Eventually("a pod without amounts is rejected", patience, func() error {
		return denied(create("team", "sgpu: 1"), "create it again when the Deployment daybreak-manager has a ready pod")
	})
	a.Must(create("team", "cpu: 1"))
	a.Must(create("default", "sgpu: 1"))
	_, err = a.Client.CoreV1().Pods("default").Create(ctx, privileged(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if problem := denied(err, `let an administrator label the namespace daybreak-gpu.io/allow-privileged: "true"`); problem != nil {
		a.Errorf("a privileged pod with cards: %v", problem)
	}
}

// privileged is a pod with cards and a privileged container.
func privileged() *corev1.Pod {
	p := gputest.MakePod("privileged").App("sgpu: 1").Obj()
	p.Spec.Containers[0].Image, p.Spec.Containers[0].SecurityContext = "none", &corev1.SecurityContext{Privileged: new(true)}
	return p
}

// ready is what kubelet reports of a pod that runs.
func (a *absence) ready(name string) error {
	return a.patchPod(a.kubelet, name, []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), "status")
}

func (a *absence) succeeded(name string) error {
	return a.patchPod(a.kubelet, name, []byte(`{"status":{"phase":"Succeeded","conditions":[{"type":"Ready","status":"False"}]}}`), "status")
}

// job creates a Job with a card and returns its pod, bound.
func (a *absence) job() *corev1.Pod {
	a.Helper()
	template := gputest.MakePod("").App("sgpu: 1").Obj()
	template.Spec.RestartPolicy, template.Spec.Containers[0].Image = corev1.RestartPolicyNever, "none"
	_, err := a.Client.BatchV1().Jobs("default").Create(a.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}, metav1.CreateOptions{})
	a.Must(err)
	var pod *corev1.Pod
	a.Eventually("the pod of the Job", patience, func() error {
		list, err := a.Client.CoreV1().Pods("default").List(a.Ctx, metav1.ListOptions{LabelSelector: "job-name=job"})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("none: %w", err)
		}
		pod = &list.Items[0]
		return nil
	})
	a.bind(pod)
	return pod
}

// withoutManager: first nothing listens, then something that never answers.
func (a *absence) withoutManager() {
	a.Helper()
	var listener net.Listener
	defer func() { // the next manager has the address
		if listener != nil {
			_ = listener.Close()
		}
	}()
	for _, silent := range []bool{false, true} {
		suffix := ""
		if silent {
			var config net.ListenConfig
			var err error
			listener, err = config.Listen(a.Ctx, "tcp", a.address)
			a.Must(err)
			suffix = "-2"
		}
		within := func(what string, do func() error) {
			a.Helper()
			start := time.Now()
			if err := do(); err != nil {
				a.Errorf("%s, silent %v: %v", what, silent, err)
			}
			a.Logf("no manager, silent %v: %s took %s", silent, what, time.Since(start).Round(10*time.Millisecond))
			if took := time.Since(start); took > 9*time.Second {
				a.Errorf("%s took %s", what, took)
			}
		}
		within("an ordinary pod", func() error { a.pod("new"+suffix, "default", "cpu: 1"); return nil })
		within("a pod of kube-system", func() error { a.pod("new"+suffix, "kube-system", "cpu: 1"); return nil })
		within("an annotation of an ordinary pod", func() error {
			return a.patchPod(a.Client, "ordinary", setAnnotation("a", suffix))
		})
		within("status of an ordinary pod", func() error { return a.ready("ordinary") })
		within("status of a node", func() error {
			return a.patchNode(a.kubelet, "n1", []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), "status")
		})
		within("a label of a node", func() error { return a.patchNode(a.Client, "n1", []byte(`{"metadata":{"labels":{"a":"b"}}}`)) })
		within("a Device of another vendor", func() error { return a.device("other"+suffix, "nvidia") })
		within("a pod with cards is ready", func() error { return a.ready("runs") })
	}
	pods := a.Client.CoreV1().Pods("default")
	for _, name := range []string{"waits", "runs"} {
		if name == "runs" {
			a.Must(a.succeeded(name))
		}
		a.Must(pods.Delete(a.Ctx, name, metav1.DeleteOptions{}))
		if name == "waits" { // for kubelet, which ends it; the other has ended
			a.Must(a.kubelet.CoreV1().Pods("default").Delete(a.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
		if _, err := pods.Get(a.Ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			a.Errorf("pod %s is still there: %v", name, err)
		}
	}

	failed := func(what string, err error) {
		a.Helper()
		gputest.ErrorHas(a, what, "failed calling webhook", err)
	}
	failed("cards of a pod", a.patchPod(a.Client, "victim", setAnnotation(wire.AnnotationAllocated, "[]")))
	failed("a Device", a.device("n2", wire.VendorMetaX))

	// Weaker below 1.28, as docs/security.md lists.
	weaker := func(what string, err error) {
		a.Helper()
		if a.conditions {
			failed(what, err)
		} else if err != nil {
			a.Errorf("%s: %v; the documentation says that it passes", what, err)
		}
	}
	forged := gputest.MakePod("forged").App("sgpu: 1").Annotate(wire.AnnotationPredicateTime, "1").Obj()
	forged.Spec.Containers[0].Image = "none"
	made, err := pods.Create(a.Ctx, forged, metav1.CreateOptions{})
	weaker("a new pod with a forged annotation", err)
	if err == nil && made.Labels[wire.LabelAdmitted] != "" {
		a.Errorf("labels %v without a manager", made.Labels)
	}
	_, err = pods.Create(a.Ctx, privileged(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	weaker("a new privileged pod", err)
	weaker("cards of a pod without the label", a.patchPod(a.Client, "unlabelled", setAnnotation(wire.AnnotationAllocated, "[]")))
	weaker("a node's annotation", a.patchNode(a.Client, "n2", setAnnotation(wire.AnnotationNodeCards, "[]")))
	weaker("cards of a pod, by its status", a.patchPod(a.Client, "victim", setAnnotation(wire.AnnotationPredicateTime, "1"), "status"))
	weaker("a Binding with cards", a.Client.CoreV1().Pods("default").Bind(a.Ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: a.unbound(), Annotations: map[string]string{wire.AnnotationAllocated: "[]"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
	}, metav1.CreateOptions{}))
}

// unbound creates an ordinary pod that waits.
func (a *absence) unbound() string {
	a.Helper()
	p := gputest.MakePod("unbound").App("cpu: 1").Obj()
	p.Spec.Containers[0].Image = "none"
	_, err := a.Client.CoreV1().Pods("default").Create(a.Ctx, p, metav1.CreateOptions{})
	a.Must(err)
	return p.Name
}

// jobEnds: the Job controller takes its finalizer, if it uses one, off an ended pod. That
// is an update of the pod: without conditions it waits for a manager.
func (a *absence) jobEnds(pod *corev1.Pod) {
	a.Helper()
	a.Must(a.succeeded(pod.Name))
	complete := func() error {
		job, err := a.Client.BatchV1().Jobs("default").Get(a.Ctx, "job", metav1.GetOptions{})
		if err != nil {
			return err
		}
		p := a.Pod(pod.Name)
		if len(p.Finalizers) > 0 || job.Status.Succeeded != 1 || job.Status.CompletionTime == nil {
			return fmt.Errorf("finalizers %v, status %+v", p.Finalizers, job.Status)
		}
		return nil
	}
	if a.conditions || len(pod.Finalizers) == 0 { // Jobs before 1.25 have no finalizer
		a.Eventually("the Job completes without a manager", patience, complete)
		return
	}
	time.Sleep(20 * time.Second)
	if err := complete(); err == nil {
		a.Error("the Job completed without a manager: the documentation says that its finalizer stays")
	} else {
		a.Logf("no manager: the Job waits: %v", err)
	}
	a.start()
	a.Eventually("the Job completes with a manager", patience, complete)
}
