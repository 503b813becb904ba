package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPolicy: the policy of the scheduler that a pod is for, as the arguments of
// the scheduler's pods show.
func TestPolicy(t *testing.T) {
	cases := map[string]struct {
		schedulers []string // arguments
		pod        string   // its schedulerName
		want       place.Policy
		wantKnown  bool
	}{
		"no scheduler is to be seen":              {pod: "daybreak"},
		"none is given":                           {schedulers: []string{"scheduler --profile=daybreak --v=2"}, pod: "daybreak", wantKnown: true},
		"one is given":                            {schedulers: []string{"scheduler --profile=daybreak --policy=binpack"}, pod: "daybreak", want: place.Binpack, wantKnown: true},
		"one is given apart":                      {schedulers: []string{"scheduler --policy spread --profile daybreak"}, pod: "daybreak", want: place.Spread, wantKnown: true},
		"replicas agree":                          {schedulers: []string{"scheduler --profile=daybreak --policy=spread", "scheduler --profile=daybreak --policy=spread"}, pod: "daybreak", want: place.Spread, wantKnown: true},
		"replicas differ":                         {schedulers: []string{"scheduler --profile=daybreak --policy=spread", "scheduler --profile=daybreak"}, pod: "daybreak"},
		"a file says it":                          {schedulers: []string{"scheduler --config=/etc/scheduler.yaml"}, pod: "daybreak"},
		"a word that is none":                     {schedulers: []string{"scheduler --policy=fast"}, pod: "daybreak"},
		"two schedulers, one by the pod's name":   {schedulers: []string{"scheduler --profile=daybreak --policy=spread", "scheduler --profile=other"}, pod: "other", wantKnown: true},
		"the pod is yet to get its schedulerName": {schedulers: []string{"scheduler --profile=daybreak --policy=spread"}, pod: "", want: place.Spread, wantKnown: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &Objects{}
			for _, args := range tc.schedulers {
				o.Pods = append(o.Pods, component("scheduler", args))
			}
			got, known := o.Snapshot().Policy(&corev1.Pod{Spec: corev1.PodSpec{SchedulerName: tc.pod}})
			if got != tc.want || known != tc.wantKnown {
				t.Errorf("Policy() = %v, %v, want %v, %v", got, known, tc.want, tc.wantKnown)
			}
		})
	}
}

// component returns a pod of one of Daybreak's components.
func component(name, args string) *corev1.Pod {
	pod := gputest.MakePod("s").App("cpu: 1").On("n1").Obj()
	pod.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": name}}
	pod.Spec.Containers[0].Args = strings.Fields(args)
	return pod
}

// TestQuotaKeys: HAMi's keys are enforced unless all schedulers say otherwise.
func TestQuotaKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		schedulers []string // arguments
		want       string
	}{
		"no scheduler is to be seen": {nil, quota.Enforce},
		"nothing is given":           {[]string{"scheduler --v=2"}, quota.Enforce},
		"warn":                       {[]string{"scheduler --quota-keys=warn", "scheduler --quota-keys warn"}, quota.Warn},
		"off":                        {[]string{"scheduler --quota-keys=off"}, quota.Off},
		"they differ":                {[]string{"scheduler --quota-keys=off", "scheduler"}, quota.Enforce},
	} {
		o := &Objects{}
		for _, args := range tc.schedulers {
			o.Pods = append(o.Pods, component("scheduler", args))
		}
		if got := o.Snapshot().QuotaKeys(); got != tc.want {
			t.Errorf("%s: QuotaKeys() = %s, want %s", name, got, tc.want)
		}
	}
}

// TestQuotaEverywhere: the label of the manager's pods says it.
func TestQuotaEverywhere(t *testing.T) {
	for part, want := range map[string]bool{"manager": true, "scheduler": false} {
		pod := component(part, part)
		o := &Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, Pods: []*corev1.Pod{pod}}
		if o.Snapshot().QuotaEverywhere() {
			t.Errorf("%s without the label: enforced everywhere", part)
		}
		pod.Labels[wire.LabelQuota] = wire.QuotaEnforced
		if got := o.Snapshot().QuotaEverywhere(); got != want {
			t.Errorf("%s with the label: enforced everywhere is %v, want %v", part, got, want)
		}
	}
}

// TestFreeCPU: what pods take of a node's CPU is off, whether or not they ask for
// cards, unless they have ended.
func TestFreeCPU(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: gputest.MakeResources("cpu: 64, gpu: 8")}}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	o := &Objects{Nodes: []*corev1.Node{node, bare}, Pods: []*corev1.Pod{
		gputest.MakePod("plain").App("cpu: 1500m").On("n1").Obj(), gputest.MakePod("card").App("gpu: 1, cpu: 2").On("n1").Obj(),
		gputest.MakePod("ended").App("cpu: 8").On("n1").Phase(corev1.PodSucceeded).Obj(), gputest.MakePod("elsewhere").App("cpu: 8").On("n2").Obj(),
	}}
	for _, p := range o.Pods {
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
	s := o.Snapshot()
	if n := s.Nodes[0]; !n.CPUKnown || n.FreeCPU != 60500 {
		t.Errorf("free CPU %d, known %v, want 60500", n.FreeCPU, n.CPUKnown)
	}
	if n := s.Nodes[1]; n.CPUKnown {
		t.Errorf("free CPU %d of a node without any", n.FreeCPU)
	}
}
