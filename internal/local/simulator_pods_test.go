package local

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestSleepOf(t *testing.T) {
	for name, tc := range map[string]struct {
		command      []string
		want         time.Duration
		ends, sleeps bool
	}{
		"seconds":               {[]string{"sleep", "30"}, 30 * time.Second, true, true},
		"with a unit":           {[]string{"/bin/sleep", "1.5m"}, 90 * time.Second, true, true},
		"by a shell":            {[]string{"sh", "-c", "sleep 2h"}, 2 * time.Hour, true, true},
		"in place of the shell": {[]string{"/bin/bash", "-c", "exec sleep 1d"}, 24 * time.Hour, true, true},
		"for ever":              {[]string{"sleep", "infinity"}, 0, false, true},
		"nearly so":             {[]string{"sleep", "1e30"}, 0, false, true},
		"more than a sleep":     {[]string{"sh", "-c", "sleep 30; train"}, 0, false, false},
		"no number":             {[]string{"sleep", "well"}, 0, false, false},
		"less than nothing":     {[]string{"sleep", "-1"}, 0, false, false},
		"another program":       {[]string{"train", "30"}, 0, false, false},
		"the image's":           {nil, 0, false, false},
	} {
		d, ends, sleeps := sleepOf(tc.command)
		if d != tc.want || ends != tc.ends || sleeps != tc.sleeps {
			t.Errorf("%s: %s, ends %t, sleeps %t; want %s, %t, %t", name, d, ends, sleeps, tc.want, tc.ends, tc.sleeps)
		}
	}
}

// kubelet is a simulated kubelet with one pod.
type kubelet struct {
	*testing.T
	s    *Simulator
	pods cache.Indexer
}

func newKubelet(t *testing.T, pod *corev1.Pod, others ...*corev1.Pod) *kubelet {
	t.Helper()
	pod.Name, pod.Namespace, pod.UID, pod.Spec.NodeName = "p", "default", "u", "n"
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}}}
	k := &kubelet{T: t, pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	for _, other := range others {
		gputest.Must(t, k.pods.Add(other))
	}
	k.s = &Simulator{client: fake.NewClientset(pod, node), pods: corelisters.NewPodLister(k.pods)}
	return k
}

func (k *kubelet) get() *corev1.Pod {
	k.Helper()
	pod, err := k.s.client.CoreV1().Pods("default").Get(k.Context(), "p", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	gputest.Must(k, err)
	return pod
}

// sync lets the kubelet work on the pod once, and returns what is left to wait.
func (k *kubelet) sync() (again time.Duration) {
	k.Helper()
	again, err := k.s.sync(k.Context(), k.get())
	gputest.Must(k, err)
	return again
}

// change changes the pod as another client does.
func (k *kubelet) change(f func(*corev1.Pod)) {
	k.Helper()
	pod := k.get()
	f(pod)
	_, err := k.s.client.CoreV1().Pods("default").Update(context.Background(), pod, metav1.UpdateOptions{})
	gputest.Must(k, err)
}

// startedAgo makes the containers look as if they had been started earlier.
func (k *kubelet) startedAgo(d time.Duration) {
	k.Helper()
	k.change(func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-d))
		}
	})
}

// is returns the condition's status.
func is(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return "none"
}

func podOf(policy corev1.RestartPolicy, commands ...[]string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}
	for i, command := range commands {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: string(rune('a' + i)), Image: "none", Command: command})
	}
	return pod
}

// TestPodEnds: containers end after the time that their command sleeps or the
// annotation says, and restart as the pod asks for.
func TestPodEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		runTime  string
		after    time.Duration
		want     corev1.PodPhase
		ready    corev1.ConditionStatus
		restarts int32
	}{
		"a command that sleeps":              {pod: podOf(corev1.RestartPolicyNever, []string{"sleep", "5"}), after: 7 * time.Second, want: corev1.PodSucceeded, ready: "False"},
		"not yet":                            {pod: podOf(corev1.RestartPolicyNever, []string{"sleep", "60"}), after: 7 * time.Second, want: corev1.PodRunning, ready: "True"},
		"restarted only on failure":          {pod: podOf(corev1.RestartPolicyOnFailure, []string{"sleep", "5"}), after: 7 * time.Second, want: corev1.PodSucceeded, ready: "False"},
		"restarted always":                   {pod: podOf(corev1.RestartPolicyAlways, []string{"sleep", "5"}), after: 7 * time.Second, want: corev1.PodRunning, ready: "True", restarts: 1},
		"one of two":                         {pod: podOf(corev1.RestartPolicyNever, []string{"sleep", "5"}, []string{"serve"}), after: 7 * time.Second, want: corev1.PodRunning, ready: "False"},
		"a command that does not end":        {pod: podOf(corev1.RestartPolicyNever, []string{"train"}), after: time.Hour, want: corev1.PodRunning, ready: "True"},
		"with the annotation it does":        {pod: podOf(corev1.RestartPolicyNever, []string{"train"}), runTime: "90s", after: 2 * time.Minute, want: corev1.PodSucceeded, ready: "False"},
		"the annotation counts, not a sleep": {pod: podOf(corev1.RestartPolicyNever, []string{"sleep", "5"}), runTime: "1h", after: 2 * time.Minute, want: corev1.PodRunning, ready: "True"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.runTime != "" {
				tc.pod.Annotations = map[string]string{wire.AnnotationRunTime: tc.runTime}
			}
			k := newKubelet(t, tc.pod)
			k.sync()
			if pod := k.get(); pod.Status.Phase != corev1.PodRunning || is(pod, corev1.PodReady) != corev1.ConditionTrue {
				t.Fatalf("not started: %+v", pod.Status)
			}
			k.startedAgo(tc.after)
			again := k.sync()
			pod := k.get()
			if pod.Status.Phase != tc.want || is(pod, corev1.PodReady) != tc.ready || pod.Status.ContainerStatuses[0].RestartCount != tc.restarts {
				t.Errorf("%s, ready %s, %+v; want %s, ready %s, %d restarts", pod.Status.Phase, is(pod, corev1.PodReady), pod.Status.ContainerStatuses, tc.want, tc.ready, tc.restarts)
			}
			if name == "not yet" && (again <= 50*time.Second || again > 55*time.Second || !needsKubelet(pod)) {
				t.Errorf("looks again after %s", again)
			}
			if tc.want == corev1.PodSucceeded && (needsKubelet(pod) || pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != 0) {
				t.Errorf("it goes on after it has ended: %+v", pod.Status)
			}
		})
	}
}

// TestRunTimeInvalid: a pod with an invalid annotation does not start, says why,
// and starts when it is corrected.
func TestRunTimeInvalid(t *testing.T) {
	pod := podOf(corev1.RestartPolicyNever, []string{"train"})
	pod.Annotations = map[string]string{wire.AnnotationRunTime: "5 minutes"}
	k := newKubelet(t, pod)
	k.sync()
	got := k.get()
	want := &corev1.ContainerStateWaiting{
		Reason:  "CreateContainerConfigError",
		Message: `annotation daybreak-gpu.io/simulated-run-time: "5 minutes" is not a duration: write 90s, 5m or 1h30m`,
	}
	if diff := cmp.Diff(want, got.Status.ContainerStatuses[0].State.Waiting); got.Status.Phase != corev1.PodPending || diff != "" {
		t.Errorf("%s (-want +got):\n%s", got.Status.Phase, diff)
	}
	k.change(func(pod *corev1.Pod) { pod.Annotations[wire.AnnotationRunTime] = "5m" })
	k.sync()
	if got := k.get(); got.Status.Phase != corev1.PodRunning || got.Status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("it does not start: %+v", got.Status)
	}
}

// TestInitContainers: init containers have ended, and sidecars run until the pod
// ends.
func TestInitContainers(t *testing.T) {
	pod := podOf(corev1.RestartPolicyNever, []string{"sleep", "5"})
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	k := newKubelet(t, pod)
	k.sync()
	got := k.get().Status.InitContainerStatuses
	if got[0].State.Terminated == nil || !got[0].Ready || got[1].State.Running == nil || !got[1].Ready {
		t.Errorf("init containers are %+v", got)
	}
	k.startedAgo(7 * time.Second)
	k.sync()
	if got := k.get(); got.Status.Phase != corev1.PodSucceeded || got.Status.InitContainerStatuses[1].State.Terminated == nil {
		t.Errorf("the pod ends as %+v", got.Status)
	}
}

// TestGracePeriod: a pod that is deleted goes when its containers have stopped.
func TestGracePeriod(t *testing.T) {
	hook := func(pod *corev1.Pod, h corev1.LifecycleHandler) *corev1.Pod {
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &h}
		return pod
	}
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		grace int64
		since time.Duration // the deletion
		gone  bool
	}{
		"a program stops at once":                     {pod: podOf("", []string{"serve"}), grace: 30, gone: true},
		"a sleep ignores the signal":                  {pod: podOf("", []string{"sleep", "infinity"}), grace: 30, since: 20 * time.Second},
		"until it is killed":                          {pod: podOf("", []string{"sleep", "infinity"}), grace: 30, since: 31 * time.Second, gone: true},
		"a hook takes its time":                       {pod: hook(podOf("", nil), corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 10}}), grace: 30, since: 8 * time.Second},
		"and not more":                                {pod: hook(podOf("", nil), corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 10}}), grace: 30, since: 12 * time.Second, gone: true},
		"a command as a hook":                         {pod: hook(podOf("", nil), corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "10"}}}), grace: 30, since: 8 * time.Second},
		"a hook does not outlast the grace period":    {pod: hook(podOf("", nil), corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 60}}), grace: 30, since: 31 * time.Second, gone: true},
		"a sleep that ends in the grace period":       {pod: podOf("", []string{"sleep", "1"}), grace: 30, since: 5 * time.Second, gone: true},
		"the slowest container counts":                {pod: podOf("", []string{"serve"}, []string{"sleep", "infinity"}), grace: 30, since: 20 * time.Second},
		"no grace":                                    {pod: podOf("", []string{"sleep", "infinity"}), grace: 0, gone: true},
		"a pod that was not started yet goes at once": {pod: &corev1.Pod{}, grace: 30, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubelet(t, tc.pod)
			if len(tc.pod.Spec.Containers) > 0 {
				k.sync()
				k.startedAgo(tc.since)
			}
			k.change(func(pod *corev1.Pod) {
				deleted := metav1.NewTime(time.Now().Add(time.Duration(tc.grace)*time.Second - tc.since))
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &deleted, &tc.grace
			})
			again := k.sync()
			if gone := k.get() == nil; gone != tc.gone || again > 0 == gone {
				t.Errorf("gone: %t, and waits %s", gone, again)
			}
		})
	}
}

// TestTerminalPhase: a pod that is held by a finalizer after its deletion has
// ended, as the controller that holds it expects.
func TestTerminalPhase(t *testing.T) {
	pod := podOf("", []string{"sleep", "infinity"})
	pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	k := newKubelet(t, pod)
	k.sync()
	k.change(func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(-time.Second))), new(int64(0))
	})
	k.sync()
	got := k.get()
	if got == nil || got.Status.Phase != corev1.PodFailed || got.Status.ContainerStatuses[0].State.Terminated.ExitCode != exitKilled {
		t.Errorf("it ends as %+v", got)
	}
}

// TestResize: resources that are changed in a running pod become those of its
// containers, as far as the node has them.
func TestResize(t *testing.T) {
	cpu := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
	}
	other := podOf("", []string{"serve"})
	other.Name, other.Namespace, other.UID, other.Spec.NodeName = "q", "default", "v", "n"
	other.Spec.Containers[0].Resources = cpu("2")
	pod := podOf("", []string{"serve"})
	pod.Spec.Containers[0].Resources = cpu("1")
	k := newKubelet(t, pod, other)
	k.sync()
	has := func() string {
		c := k.get().Status.ContainerStatuses[0]
		gputest.Equal(t, "allocated and actual resources", c.AllocatedResources, c.Resources.Requests)
		return c.Resources.Requests.Cpu().String()
	}
	pending := func() string {
		for _, c := range k.get().Status.Conditions {
			if c.Type == corev1.PodResizePending {
				return c.Reason
			}
		}
		return ""
	}
	if got := has(); got != "1" || needsKubelet(k.get()) {
		t.Errorf("the container has %s CPUs at first", got)
	}
	for _, step := range []struct{ want, has, pending string }{
		{"1500m", "1500m", ""},
		{"3", "1500m", corev1.PodReasonDeferred},
		{"2", "2", ""},
	} {
		k.change(func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = cpu(step.want) })
		again := k.sync()
		if has() != step.has || pending() != step.pending || again > 0 != (step.pending == corev1.PodReasonDeferred) {
			t.Errorf("%s CPUs: it has %s, pending: %q, looks again after %s", step.want, has(), pending(), again)
		}
	}
	if got := k.get().Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("%d restarts", got)
	}
	k.change(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		pod.Spec.Containers[0].Resources = cpu("1")
	})
	k.sync()
	if got := k.get().Status.ContainerStatuses[0].RestartCount; got != 1 || has() != "1" {
		t.Errorf("%d restarts, %s CPUs", got, has())
	}
}

// TestKeepNode: a kubelet restores the amounts that it reports and, after its lease
// expired, Ready, and registers a Node that was deleted and created again.
func TestKeepNode(t *testing.T) {
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{wire.LabelSimulated: "true"}, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{wire.ResourceSGPU: resource.MustParse("128")},
			Allocatable: corev1.ResourceList{wire.ResourceSGPU: resource.MustParse("128")},
			Conditions:  isReady(),
		},
	}
	now := want.DeepCopy()
	now.UID, now.Annotations = "first", nil // its annotation was taken away on purpose
	now.Status.Capacity = corev1.ResourceList{wire.ResourceSGPU: resource.MustParse("0"), "example.com/other": resource.MustParse("3")}
	now.Status.Allocatable = nil
	now.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
	}
	s := &Simulator{client: fake.NewClientset(now)}
	n := &simulated{want: want, uid: "first"}
	keep := func() *corev1.Node {
		t.Helper()
		gputest.Must(t, s.keep(t.Context(), n))
		got, err := s.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		gputest.Must(t, err)
		return got
	}
	got := keep()
	status := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range got.Status.Conditions {
		status[c.Type] = c.Status
	}
	gputest.Equal(t, "conditions", map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True", corev1.NodeDiskPressure: "False"}, status)
	counts := map[string]int64{}
	for name, q := range got.Status.Capacity {
		counts[string(name)] = q.Value()
	}
	gputest.Equal(t, "capacity", map[string]int64{"metax-tech.com/sgpu": 128, "example.com/other": 3}, counts)
	if q := got.Status.Allocatable[wire.ResourceSGPU]; q.Value() != 128 || got.Annotations[wire.AnnotationServedBy] != "" {
		t.Errorf("allocatable %v, annotations %v", got.Status.Allocatable, got.Annotations)
	}

	nodes := s.client.CoreV1().Nodes()
	gputest.Must(t, nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}))
	if err := s.keep(t.Context(), n); err != nil {
		t.Errorf("a Node that is gone: %v", err)
	}
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "second"}}, metav1.CreateOptions{})
	gputest.Must(t, err)
	got = keep()
	if q := got.Status.Allocatable[wire.ResourceSGPU]; got.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak || got.Labels[wire.LabelSimulated] != "true" || q.Value() != 128 || len(got.Status.Conditions) == 0 {
		t.Errorf("registered again as %+v", got)
	}
}
