package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// workload returns a controller of pods with a card each.
func workload(kind, name, spec string) string {
	version := "apps/v1"
	switch kind {
	case "Job", "CronJob":
		version = "batch/v1"
	case "ReplicationController":
		version = "v1"
	}
	template := "template: {metadata: {labels: {app: a}}, spec: {priorityClassName: high, containers: [{name: main, resources: {limits: {metax-tech.com/gpu: 1}}}]}}"
	spec = strings.ReplaceAll(spec, "TEMPLATE", template)
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: team}\nspec: {%s}\n", version, kind, name, spec)
}

// completed reads and completes the documents.
func completed(docs ...string) (*Objects, error) {
	objects, err := ReadFiles([]string{"-"}, strings.NewReader(manifest.Join(docs...)))
	if err != nil {
		return nil, err
	}
	err = objects.Complete()
	return objects, err
}

// TestExpandWorkloads: every kind of workload becomes the pods that its controller
// would create, at its place in the files.
func TestExpandWorkloads(t *testing.T) {
	cases := map[string]struct {
		docs []string
		want []string
	}{
		"a Deployment":                     {[]string{workload("Deployment", "web", "replicas: 3, TEMPLATE")}, []string{"team/web-1", "team/web-2", "team/web-3"}},
		"a Deployment without replicas":    {[]string{workload("Deployment", "web", "TEMPLATE")}, []string{"team/web-1"}},
		"a Deployment scaled to 0":         {[]string{workload("Deployment", "web", "replicas: 0, TEMPLATE")}, nil},
		"a ReplicaSet":                     {[]string{workload("ReplicaSet", "web", "replicas: 2, TEMPLATE")}, []string{"team/web-1", "team/web-2"}},
		"a ReplicationController":          {[]string{workload("ReplicationController", "web", "replicas: 2, TEMPLATE")}, []string{"team/web-1", "team/web-2"}},
		"a StatefulSet":                    {[]string{workload("StatefulSet", "db", "replicas: 2, TEMPLATE")}, []string{"team/db-0", "team/db-1"}},
		"a StatefulSet that counts from 5": {[]string{workload("StatefulSet", "db", "ordinals: {start: 5}, replicas: 2, TEMPLATE")}, []string{"team/db-5", "team/db-6"}},
		"a Job":                            {[]string{workload("Job", "train", "TEMPLATE")}, []string{"team/train-1"}},
		"a Job with more completions":      {[]string{workload("Job", "train", "parallelism: 2, completions: 5, TEMPLATE")}, []string{"team/train-1", "team/train-2"}},
		"a Job with fewer completions":     {[]string{workload("Job", "train", "parallelism: 5, completions: 2, TEMPLATE")}, []string{"team/train-1", "team/train-2"}},
		"a Job that is suspended":          {[]string{workload("Job", "train", "suspend: true, TEMPLATE")}, nil},
		"a CronJob":                        {[]string{workload("CronJob", "nightly", "schedule: '0 1 * * *', jobTemplate: {spec: {parallelism: 2, TEMPLATE}}")}, []string{"team/nightly-1", "team/nightly-2"}},
		"a DaemonSet": {
			[]string{workload("DaemonSet", "probe", "TEMPLATE"), nodeText, strings.ReplaceAll(nodeText, "n1", "n2"), strings.ReplaceAll(nodeText, "n1", "n3") + "spec: {taints: [{key: a, effect: NoSchedule}]}\n"},
			[]string{"team/probe-n1", "team/probe-n2"},
		},
		"a DaemonSet on a cordoned node": {
			[]string{workload("DaemonSet", "probe", "TEMPLATE"), nodeText + "spec: {unschedulable: true}\n"}, []string{"team/probe-n1"},
		},
		"names that are taken": {
			[]string{workload("Deployment", "web", "replicas: 2, TEMPLATE"), strings.ReplaceAll(podText, "name: p1", "name: web-1, namespace: team")},
			[]string{"team/web-2", "team/web-3", "team/web-1"},
		},
		"a StatefulSet of which one pod is there": {
			[]string{strings.ReplaceAll(podText, "name: p1", "name: db-0, namespace: team"), workload("StatefulSet", "db", "replicas: 2, TEMPLATE")},
			[]string{"team/db-0", "team/db-1"},
		},
		"pods and workloads in the order of the files": {
			[]string{podText, workload("Job", "train", "TEMPLATE"), strings.ReplaceAll(podText, "p1", "p2"), workload("Job", "eval", "TEMPLATE")},
			[]string{"default/p1", "team/train-1", "default/p2", "team/eval-1"},
		},
		"a ReplicaSet of a Deployment that is there too": {
			[]string{workload("Deployment", "web", "TEMPLATE"), strings.ReplaceAll(workload("ReplicaSet", "web-5d", "TEMPLATE"), "namespace: team}", "namespace: team, ownerReferences: [{kind: Deployment, name: web, uid: u, controller: true}]}")},
			[]string{"team/web-1"},
		},
		"a dump of a cluster, where its pods are too": {
			[]string{strings.ReplaceAll(nodeText, "name: n1", "name: n1, uid: u0"), strings.ReplaceAll(workload("Deployment", "web", "TEMPLATE"), "namespace: team}", "namespace: team, uid: u}"), podText},
			[]string{"default/p1"},
		},
		"a workload of a cluster without its nodes": {
			[]string{strings.ReplaceAll(workload("Deployment", "web", "TEMPLATE"), "namespace: team}", "namespace: team, uid: u}")},
			[]string{"team/web-1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := completed(tc.docs...)
			gputest.Must(t, err)
			gputest.Equal(t, "pods", tc.want, namesOf(objects).Pods)
		})
	}
}

// TestDaemonIsPinned: a pod of a DaemonSet may use its own node alone.
func TestDaemonIsPinned(t *testing.T) {
	objects, err := completed(workload("DaemonSet", "probe", "TEMPLATE"), nodeText, strings.ReplaceAll(nodeText, "n1", "n2"))
	gputest.Must(t, err)
	filter := NewNodeFilter(objects.Pods[1])
	for i, want := range []bool{false, true} {
		gputest.Equal(t, fmt.Sprintf("%s may use %s", objects.Pods[1].Name, objects.Nodes[i].Name), want, filter.Exclusion(&Facts{Name: objects.Nodes[i].Name, Node: objects.Nodes[i]}).Kind == 0)
	}
}

func TestWorkloadsThatCanNotBeExpanded(t *testing.T) {
	for name, tc := range map[string]struct{ doc, want string }{
		"no template":                 {workload("Deployment", "web", "replicas: 1"), "standard input, document 1: Deployment web: spec.template is missing"},
		"a template without a pod":    {workload("Deployment", "web", "template: {}"), "standard input, document 1: Deployment web: spec.template has no containers"},
		"a template of another type":  {workload("Job", "web", "template: {spec: {containers: {}}}"), "standard input, document 1: Job web: spec.template: spec.containers is a mapping, want a list"},
		"replicas beyond all bounds":  {workload("Deployment", "web", "replicas: 2000000000, TEMPLATE"), "standard input, document 1: Deployment web: spec.replicas is 2000000000: want 0 to 10000"},
		"parallelism below 0":         {workload("Job", "web", "parallelism: -1, TEMPLATE"), "standard input, document 1: Job web: spec.parallelism is -1: want 0 to 10000"},
		"ordinals below 0":            {workload("StatefulSet", "db", "ordinals: {start: -1}, TEMPLATE"), "standard input, document 1: StatefulSet db: spec.ordinals.start is -1: want 0 to 2147483647"},
		"replicas that are no number": {workload("Deployment", "web", "replicas: many, TEMPLATE"), "standard input, document 1: Deployment: spec.replicas is a string, want a whole number in range"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := completed(tc.doc); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestWorkloadsThatAreNotExpanded: other commands than place note them, unless they
// are of a dump.
func TestWorkloadsThatAreNotExpanded(t *testing.T) {
	text := manifest.Join(workload("Job", "train", "TEMPLATE"), strings.ReplaceAll(workload("Job", "eval", "TEMPLATE"), "namespace: team}", "namespace: team, uid: u}"), nodeText)
	objects, err := ReadFiles([]string{"-"}, strings.NewReader(text))
	gputest.Must(t, err)
	s := objects.Snapshot()
	want := []string{"standard input, document 1: passed over Job train: only daybreak place makes pods of it"}
	if diff := cmp.Diff(want, s.Notes); diff != "" || len(s.Pending) > 0 {
		t.Errorf("%d pods, notes (-want +got):\n%s", len(s.Pending), diff)
	}
}

// TestPriorityClasses: priorities are resolved as the API server does.
func TestPriorityClasses(t *testing.T) {
	class := func(name string, value int, more string) string {
		return fmt.Sprintf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: %s}\nvalue: %d\n%s\n", name, value, more)
	}
	pod := func(spec string) string { return manifest.Pod("p", "gpu: 1") + "  " + spec + "\n" }
	never := corev1.PreemptNever
	for name, tc := range map[string]struct {
		docs   []string
		want   int32
		policy *corev1.PreemptionPolicy
	}{
		"a class after its pod":      {docs: []string{pod("priorityClassName: high"), class("high", 7, "")}, want: 7},
		"a class that never evicts":  {docs: []string{pod("priorityClassName: high"), class("high", 7, "preemptionPolicy: Never")}, want: 7, policy: &never},
		"a class of every cluster":   {docs: []string{pod("priorityClassName: system-node-critical")}, want: 2000001000},
		"a priority that is given":   {docs: []string{pod("priority: 3"), class("high", 7, "globalDefault: true")}, want: 3},
		"the default class":          {docs: []string{pod("restartPolicy: Never"), class("high", 7, "globalDefault: true"), class("low", 5, "globalDefault: true")}, want: 5},
		"a class that is not there":  {docs: []string{pod("priorityClassName: high")}, want: 0},
		"a workload's pod has class": {docs: []string{workload("Job", "train", "TEMPLATE"), class("high", 9, "")}, want: 9},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := completed(tc.docs...)
			gputest.Must(t, err)
			p := objects.Pods[0]
			var got int32
			if p.Spec.Priority != nil {
				got = *p.Spec.Priority
			}
			if got != tc.want || !cmp.Equal(p.Spec.PreemptionPolicy, tc.policy) {
				t.Errorf("priority %d, policy %v, want %d, %v", got, p.Spec.PreemptionPolicy, tc.want, tc.policy)
			}
		})
	}
}

// TestEventsInFiles: Events of both groups are read.
func TestEventsInFiles(t *testing.T) {
	objects, err := ReadFiles([]string{"-"}, strings.NewReader(manifest.Join(`apiVersion: v1
kind: Event
metadata: {name: e1, namespace: team}
involvedObject: {kind: ReplicaSet, namespace: team, name: web-5d}
reason: FailedCreate
message: denied
count: 12
lastTimestamp: "2026-03-15T12:00:00Z"
`, `apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e2, namespace: team}
regarding: {kind: Pod, namespace: team, name: victim}
related: {kind: Pod, namespace: team, name: big, uid: u1}
reason: Preempted
note: Preempted by pod u1 on node n1
eventTime: "2026-03-15T12:00:01.000000Z"
`)))
	gputest.Must(t, err)
	var got []string
	for _, e := range objects.Events {
		got = append(got, fmt.Sprintf("%s %s/%s %s %q %d %q %s", e.Kind, e.Namespace, e.Name, e.Reason, e.Message, e.Count, e.Related, e.Last.UTC().Format("15:04:05")))
	}
	want := []string{
		`ReplicaSet team/web-5d FailedCreate "denied" 12 "" 12:00:00`,
		`Pod team/victim Preempted "Preempted by pod u1 on node n1" 1 "u1" 12:00:01`,
	}
	gputest.Equal(t, "events", want, got)
}
