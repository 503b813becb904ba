package integration

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// testOwnWrites: what the parts write of their own, today and in the release
// before, passes.
func testOwnWrites(t *testing.T, th *thieves) {
	for _, step := range slices.Concat(th.agentWrites(), th.managerWrites(), th.schedulerWrites()) {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

type write struct {
	name string
	do   func() error
}

func (th *thieves) agentWrites() []write {
	agent := th.tokens[partAgent]
	apply := func(annotations map[string]string) func() error {
		return func() error {
			text := jsonOf(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "metax-1", "annotations": annotations}})
			_, err := agent.CoreV1().Nodes().Patch(th.Ctx, "metax-1", types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: wire.AgentComponent, Force: new(true)})
			return err
		}
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: "default", Name: "metax-1"}
	event := eventOf(wire.AgentComponent, "metax-1", about)
	event.Name, event.GenerateName = "agents", ""
	all := map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}
	for _, key := range wire.AgentAnnotations() {
		if key != wire.AnnotationServedBy {
			all[key] = "{}"
		}
	}
	return []write{
		{"the agent's annotations", apply(all)},
		{"the agent's annotations change", apply(map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak, wire.AnnotationNodeCards: "[]"})},
		{"the agent's annotations go", apply(nil)},
		{"the agent's Event", func() error {
			_, err := agent.CoreV1().Events("default").Create(th.Ctx, event, metav1.CreateOptions{})
			return err
		}},
		{"the agent's Event again", func() error {
			_, err := agent.CoreV1().Events("default").Patch(th.Ctx, "agents", types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
			return err
		}},
	}
}

func (th *thieves) managerWrites() []write {
	client := th.tokens[partManager]
	type object = map[string]any
	patch := func(body object, subresources ...string) func() error {
		return func() error {
			_, err := client.CoreV1().Nodes().Patch(th.Ctx, "metax-2", types.MergePatchType, jsonOf(body), metav1.PatchOptions{FieldManager: wire.ManagerComponent}, subresources...)
			return err
		}
	}
	labels, amounts, none := object{}, object{}, object{}
	for _, key := range wire.AdvertisedLabels() {
		labels[key] = "x"
	}
	for i, name := range wire.AdvertisedResources() {
		amounts[string(name)], none[string(name)] = strconv.Itoa(100+i), nil
	}
	return []write{
		{"the manager's labels and mark", patch(object{"metadata": object{"labels": labels, "annotations": object{wire.AnnotationAdvertised: "x"}}})},
		{"the manager's amounts", patch(object{"status": object{"capacity": amounts, "allocatable": amounts}}, "status")},
		{"the manager's amounts go", patch(object{"status": object{"capacity": none, "allocatable": none}}, "status")},
		{"the manager's labels and mark go", patch(object{"metadata": object{"labels": object{wire.LabelModel: nil}, "annotations": object{wire.AnnotationAdvertised: nil}}})},
		{"the caBundle", func() error {
			configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
			c, err := configurations.Get(th.Ctx, policy.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = nil
			}
			_, err = configurations.Update(th.Ctx, c, metav1.UpdateOptions{})
			return err
		}},
		{"the manager's Event", func() error {
			e := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "e"}, EventTime: metav1.NowMicro(), Reason: "R", Action: "A", Type: "Normal",
				Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "metax-2"},
				ReportingController: wire.ManagerComponent, ReportingInstance: "daybreak-manager-1",
			}
			_, err := client.EventsV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		}},
		{"the manager's Event of an election", func() error {
			e := eventOf("host_1", "", corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "default", Name: "daybreak-manager"})
			e.Reason = "LeaderElection"
			_, err := client.CoreV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		}},
		{"the certificates", func() error {
			secrets := client.CoreV1().Secrets(manager.DefaultNamespace)
			secret, err := secrets.Get(th.Ctx, policy.Secret, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = secrets.Update(th.Ctx, secret, metav1.UpdateOptions{})
			return err
		}},
	}
}

func (th *thieves) schedulerWrites() []write {
	client := th.tokens[partScheduler]
	lock := func(value any) func() error {
		return func() error {
			_, err := client.CoreV1().Nodes().Patch(th.Ctx, "metax-2", types.MergePatchType, harness.Annotate(map[string]any{wire.AnnotationLock: value}), metav1.PatchOptions{})
			return err
		}
	}
	event := func(name string) func() error {
		return func() error {
			e := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "e"}, EventTime: metav1.NowMicro(), Reason: "R", Action: "A", Type: "Normal",
				Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
				ReportingController: name, ReportingInstance: name + "-host",
			}
			_, err := client.EventsV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		}
	}
	return []write{
		{"the lock", lock("2026-01-02T03:04:05Z,default,p")},
		{"the lock changes", lock("2026-01-02T03:04:06Z,default,q")},
		{"the lock goes", lock(nil)},
		{"the scheduler's Event", event("daybreak")},
		{"the scheduler's Event in the place of kube-scheduler", event(corev1.DefaultSchedulerName)},
		{"another scheduler's annotation", func() error {
			if th.guards != byServer { // the manager reads the policies when it starts
				return nil
			}
			p := th.Policies()
			p.OtherSchedulers = []string{"hami-scheduler"}
			th.Must(th.Guard(th.Ctx, p))
			config := th.REST()
			config.Impersonate = rest.ImpersonationConfig{UserName: "hami-scheduler", Groups: []string{"system:masters"}}
			_, err := th.ClientOf(config).CoreV1().Nodes().Patch(th.Ctx, "metax-2", types.MergePatchType,
				harness.Annotate(map[string]any{"hami.io/node-handshake-metax": "x"}), metav1.PatchOptions{})
			return err
		}},
	}
}
