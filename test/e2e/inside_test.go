package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// exec runs a command in a container, as kubectl exec does.
func (w *world) exec(p *corev1.Pod, container string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
	defer cancel()
	url := w.Client.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(w.REST(), "GET", url.String())
	if older() {
		executor, err = remotecommand.NewSPDYExecutor(w.REST(), "POST", url)
	}
	if err != nil {
		return "", err
	}
	var out, problems bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problems}); err != nil {
		return "", fmt.Errorf("exec in %s/%s: %w: %s", p.Name, container, err, problems.String())
	}
	return out.String(), nil
}

// view is what a container sees of the cards.
type view struct {
	pod, container string
	// nodes are the device nodes, "major:minor" by path.
	nodes map[string]string
	env   map[string]string
}

// look lists the device nodes of cards, and the environment.
const look = `for n in /dev/mx* /dev/dri/* /dev/sgpu*; do [ -e $n ] && stat -c '%n %t:%T' $n; done; echo --; env`

// look looks at the cards from inside of a container.
func (w *world) look(p *corev1.Pod, container string) (*view, error) {
	out, err := w.exec(p, container, "sh", "-c", look)
	if err != nil {
		return nil, err
	}
	v := &view{pod: p.Name, container: container, nodes: map[string]string{}, env: map[string]string{}}
	nodes, env, _ := strings.Cut(out, "--\n")
	for line := range strings.Lines(nodes) {
		path, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		major, minor, err := decimal(number)
		if err != nil {
			return nil, err
		}
		v.nodes[path] = fmt.Sprintf("%d:%d", major, minor)
	}
	for line := range strings.Lines(env) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v.env[key] = value
	}
	return v, nil
}

// decimal reads the two numbers of a device, which stat prints in hexadecimal.
func decimal(number string) (major, minor int64, err error) {
	a, b, _ := strings.Cut(number, ":")
	major, err = strconv.ParseInt(a, 16, 64)
	if err == nil {
		minor, err = strconv.ParseInt(b, 16, 64)
	}
	return major, minor, err
}

// judge compares what a container sees with what its pod was given, and returns
// the minors of its slices.
func (v *view) judge(h *hardware, given []share, qos string) (minors []int, problems []string) {
	want := map[string]string{}
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s/%s: %s", v.pod, v.container, fmt.Sprintf(format, args...)))
	}
	if len(given) > 0 {
		want["/dev/mxcd"] = "1:3"
	}
	for _, s := range given {
		card := h.card(s.UUID, "")
		if card < 0 {
			say("was given card %s, which is not there", s.UUID)
			continue
		}
		if !s.isSlice() {
			c := &h.machine.Cards[card]
			want[fmt.Sprintf("/dev/dri/card%d", c.DRMCard)] = fmt.Sprintf("%d:%d", majorDRM, c.DRMCard)
			want[fmt.Sprintf("/dev/dri/renderD%d", c.Render)] = fmt.Sprintf("%d:%d", majorDRM, c.Render)
			continue
		}
		minor, problem := v.sliceOf(h, card, s)
		if problem != "" {
			say("%s", problem)
			continue
		}
		if class, known := classes[qos]; known && h.class[card] != class {
			say("card %d runs class %d, the pod was given %s", card, h.class[card], qos)
		}
		minors = append(minors, minor)
		want[fmt.Sprintf("/dev/sgpu%d", minor)] = fmt.Sprintf("%d:%d", majorSlice, minor)
	}
	if !maps.Equal(want, v.nodes) {
		say("sees %v, want %v", v.nodes, want)
	}
	return minors, problems
}

// sliceOf finds the slice of a share among the nodes that the container sees.
func (v *view) sliceOf(h *hardware, card int, s share) (minor int, problem string) {
	for _, slice := range h.ours() {
		if _, seen := v.nodes[fmt.Sprintf("/dev/sgpu%d", slice.Minor)]; !seen || slice.Card != card {
			continue
		}
		compute := 0
		if s.Compute != nil {
			compute = *s.Compute
		}
		if slice.MiB != s.VRAM || slice.Compute != compute {
			return 0, fmt.Sprintf("its slice has %d MiB and %d %%, the annotation says %d MiB and %d %%", slice.MiB, slice.Compute, s.VRAM, compute)
		}
		return slice.Minor, ""
	}
	return 0, fmt.Sprintf("sees %v: no slice of card %d", v.nodes, card)
}

// inspect looks into every container of the pods and compares what it sees with
// the pod's annotation and with the cards: nothing missing, nothing of others.
func (w *world) inspect(c *cards, pods ...*corev1.Pod) map[types.UID][]*view {
	w.Helper()
	type job struct {
		pod       *corev1.Pod
		container string
		given     []share
	}
	var jobs []job
	for _, p := range pods {
		all, err := sharesOf(p)
		w.Must(err)
		for i := range p.Spec.Containers {
			jobs = append(jobs, job{p, p.Spec.Containers[i].Name, all[len(p.Spec.InitContainers)+i]})
		}
	}
	views := make([]*view, len(jobs))
	var group errgroup.Group
	group.SetLimit(8)
	for i, j := range jobs {
		group.Go(func() (err error) {
			views[i], err = w.look(j.pod, j.container)
			return err
		})
	}
	w.Must(group.Wait())
	h, err := c.hardware()
	w.Must(err)
	owners := map[int]string{}
	out := map[types.UID][]*view{}
	for i, j := range jobs {
		out[j.pod.UID] = append(out[j.pod.UID], views[i])
		minors, problems := views[i].judge(h, j.given, j.pod.Annotations[wire.AnnotationQoS])
		for _, problem := range problems {
			w.Error(problem)
		}
		for _, minor := range minors {
			if other, taken := owners[minor]; taken {
				w.Errorf("slice %d is in %s and in %s/%s", minor, other, j.pod.Name, j.container)
			}
			owners[minor] = j.pod.Name + "/" + j.container
		}
	}
	return out
}

// slicesAre waits until the slices on the cards are exactly those of the pods,
// and whatever others made.
func (w *world) slicesAre(c *cards, foreign int, pods ...*corev1.Pod) {
	w.Helper()
	var want []string
	m := c.machine
	for _, p := range pods {
		all, err := sharesOf(p)
		w.Must(err)
		for _, given := range all {
			for _, s := range given {
				if !s.isSlice() {
					continue
				}
				compute := 0
				if s.Compute != nil {
					compute = *s.Compute
				}
				card := (&hardware{machine: m}).card(s.UUID, "")
				want = append(want, fmt.Sprintf("card %d: %d MiB, %d %%", card, s.VRAM, compute))
			}
		}
	}
	slices.Sort(want)
	w.Eventually("the slices are those of the pods", time.Minute, func() error {
		h, err := c.hardware()
		if err != nil {
			return err
		}
		var got []string
		for _, s := range h.ours() {
			got = append(got, fmt.Sprintf("card %d: %d MiB, %d %%", s.Card, s.MiB, s.Compute))
		}
		slices.Sort(got)
		if !slices.Equal(want, got) {
			return fmt.Errorf("slices %q, want %q", got, want)
		}
		if n := len(h.slices) - len(got); n != foreign {
			return fmt.Errorf("%d slices of others, want %d", n, foreign)
		}
		return nil
	})
}

// create creates pods at once.
func (w *world) create(pods ...*corev1.Pod) {
	w.Helper()
	var group errgroup.Group
	for _, p := range pods {
		group.Go(func() error {
			// The manager, in this process, may be slow to answer on a busy machine.
			return machine.Until(w.Ctx, 30*time.Second, func() error {
				_, err := w.Client.CoreV1().Pods(p.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil
				}
				return err
			})
		})
	}
	w.Must(group.Wait())
}

// running waits until the pods run and returns them.
func (w *world) running(patience time.Duration, names ...string) []*corev1.Pod {
	w.Helper()
	out := make([]*corev1.Pod, len(names))
	w.Eventually(fmt.Sprintf("%d pods run", len(names)), patience, func() error {
		list, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i, name := range names {
			at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == name })
			if at < 0 {
				return fmt.Errorf("pod %s is not there", name)
			}
			p := &list.Items[at]
			if !ready(p) {
				return fmt.Errorf("pod %s: %s %s %s %v", name, p.Status.Phase, p.Status.Reason, p.Status.Message, states(p))
			}
			out[i] = p
		}
		return nil
	})
	return out
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// states returns why containers are waiting.
func states(p *corev1.Pod) []string {
	var out []string
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			out = append(out, s.Name+": "+s.State.Waiting.Reason+" "+s.State.Waiting.Message)
		}
	}
	return out
}

// warnings returns the warning events on pods so far.
func (w *world) warnings() []string {
	w.Helper()
	list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.kind=Pod"})
	w.Must(err)
	var out []string
	for i := range list.Items {
		e := &list.Items[i]
		out = append(out, e.InvolvedObject.Name+": "+e.Reason+": "+e.Message)
	}
	return out
}

// noWarnings fails when a pod with one of the names got a warning.
func (w *world) noWarnings(names ...string) {
	w.Helper()
	for _, text := range w.warnings() {
		name, _, _ := strings.Cut(text, ":")
		if slices.Contains(names, name) {
			w.Errorf("warning event on %s", text)
		}
	}
}

// watchLock reports whether anybody locks the node, until stop is called.
func (w *world) watchLock() (stop func() []string) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	watcher, err := w.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName})
	w.Must(err)
	var mu sync.Mutex
	var seen []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok && node.Annotations[wire.AnnotationLock] != "" {
				mu.Lock()
				seen = append(seen, node.Annotations[wire.AnnotationLock])
				mu.Unlock()
			}
		}
	}()
	return func() []string {
		cancel()
		<-done
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}
