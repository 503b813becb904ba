package deployed

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Components are Daybreak's parts.
var Components = []string{"agent", "manager", "scheduler"}

// Parts is the kubelet of Daybreak's own pods, on all nodes.
type Parts struct {
	world   *World
	library string
	// devices are the flags that lead an agent to the devices, by machine.
	devices map[string][]string
	life    sync.WaitGroup

	mu sync.Mutex
	// turn is which version of a component may run, if it has one: a pod of another one
	// waits, as for its image, and one that is to end goes on until its version's time is over.
	turn map[string]string
	pods map[types.UID]*Part
	next int
	help map[string]string
}

// Part is a pod of Daybreak's, with its process.
type Part struct {
	Pod *corev1.Pod
	// Component is "agent", "manager" or "scheduler", and Version the tag of its image.
	Component, Version string
	process            *local.Process
	// addresses are where it listens, by the names of its ports.
	addresses map[string]string
	// stop is closed when the pod is to end.
	stop     chan struct{}
	stopping bool
	// killed is set until the process is started again.
	killed, ready bool
	// turn is held while the process is started or ended.
	turn sync.Mutex
	// lines are those of its metrics that were logged.
	lines []string
}

// Log returns the path of the process's log.
func (x *Part) Log() string { return x.process.Log() }

func newParts(w *World, library string) *Parts {
	return &Parts{world: w, library: library, devices: map[string][]string{}, turn: map[string]string{}, pods: map[types.UID]*Part{}, help: map[string]string{}}
}

// wait returns when all processes have ended, after the world.
func (p *Parts) wait() { p.life.Wait() }

// Allow gives a version of a component its turn. Without a turn any may run.
func (p *Parts) Allow(component, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn[component] = version
}

// turnOf returns the version whose turn it is.
func (p *Parts) turnOf(component string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turn[component]
}

// Ready returns the parts of a component that are, beginning with another one each
// time.
func (p *Parts) Ready(component string) []*Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Part
	for _, uid := range slices.Sorted(maps.Keys(p.pods)) {
		if x := p.pods[uid]; x.Component == component && x.ready && !x.stopping {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil
	}
	p.next++
	at := p.next % len(list)
	return slices.Concat(list[at:], list[:at])
}

// WithProcess returns the parts that have a process, in the order of their names.
func (p *Parts) WithProcess() []*Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Part
	for _, x := range p.pods {
		if x.process != nil {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b *Part) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	return list
}

// watch follows Daybreak's pods until the world ends.
func (p *Parts) watch() {
	machine.WatchPods(p.world.Ctx, p.world.Client, Namespace, fields.Everything(), p.see, func(*corev1.Pod) {})
}

// see takes in what the API server says of a pod.
func (p *Parts) see(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.pods[pod.UID]
	if x == nil {
		_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
		x = &Part{Pod: pod, Component: pod.Spec.Containers[0].Name, Version: tag, stop: make(chan struct{})}
		p.pods[pod.UID] = x
		p.life.Go(func() { p.run(x) })
	}
	if pod.DeletionTimestamp != nil && !x.stopping {
		x.stopping = true
		close(x.stop)
	}
}

// run is the life of a pod.
func (p *Parts) run(x *Part) {
	w := p.world
	defer func() {
		p.mu.Lock()
		delete(p.pods, x.Pod.UID)
		p.mu.Unlock()
	}()
	for turn := p.turnOf(x.Component); turn != "" && turn != x.Version; turn = p.turnOf(x.Component) {
		if isClosed(x.stop) {
			p.remove(x)
			return
		}
		if !machine.Sleep(w.Ctx, 50*time.Millisecond) {
			return
		}
	}
	if err := p.start(x); err != nil {
		w.Fault("%s did not start: %v", x.Pod.Name, err)
		return
	}
	p.probe(x)
	if !isClosed(x.stop) {
		x.process.Kill() // the world ends
		return
	}
	p.end(x)
	p.remove(x)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Kill ends the process at once and leaves its pod not ready, until [Parts.Restart].
func (p *Parts) Kill(x *Part) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.killed = true
	x.process.Kill()
	p.setReady(x, false)
}

// Restart ends the process and starts it again in its pod, and returns when it is
// ready.
func (p *Parts) Restart(x *Part) error {
	x.turn.Lock()
	p.setReady(x, false)
	x.process.Stop()
	err := x.process.Start()
	x.killed = false
	x.turn.Unlock()
	if err != nil {
		return err
	}
	return machine.Until(p.world.Ctx, time.Minute, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !x.ready && !x.stopping {
			return fmt.Errorf("%s (%s), which was started again, is not ready", x.Pod.Name, x.Version)
		}
		return nil
	})
}

// start starts the process of a pod.
func (p *Parts) start(x *Part) error {
	kubeconfig, err := p.kubeconfig(x)
	if err != nil {
		return err
	}
	args, err := p.args(x, kubeconfig)
	if err != nil {
		return err
	}
	process := p.world.NewProcess(x.Pod.Name+"-"+x.Version, p.world.Binaries[x.Version], args...)
	for _, e := range x.Pod.Spec.Containers[0].Env {
		process.Env = append(process.Env, e.Name+"="+valueOf(x.Pod, &e))
	}
	if x.Component == "agent" {
		process.Env = append(process.Env, fake.EnvConfig+"="+p.world.MachineOf(x.Pod.Spec.NodeName).Driver())
	}
	if err := process.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	x.process = process
	p.mu.Unlock()
	return nil
}

// kubeconfig writes how the pod reaches the API server: with the token of its
// service account, bound to it, which names its node.
func (p *Parts) kubeconfig(x *Part) (string, error) {
	w := p.world
	config, err := harness.ConfigOf(w.Ctx, w.Cluster, x.Pod)
	if err != nil {
		return "", err
	}
	return w.Kubeconfig(x.Pod.Name), w.WriteKubeconfig(x.Pod.Name, &clientcmdapi.AuthInfo{Token: config.BearerToken})
}

// args returns the flags that the chart gives the part, followed by those that all
// parts on one machine need: addresses, files, and where the node's things are.
func (p *Parts) args(x *Part, kubeconfig string) ([]string, error) {
	free, err := local.FreeAddresses(p.world.Ctx, 4)
	if err != nil {
		return nil, err
	}
	here := []string{"--kubeconfig=" + kubeconfig}
	switch x.Component {
	case "agent":
		x.addresses = map[string]string{"health": free[0], "metrics": free[0]}
		here = append(here, p.world.MachineOf(x.Pod.Spec.NodeName).AgentArgs(p.library, free[0])...)
		here = append(here, p.devices[x.Pod.Spec.NodeName]...)
	case "manager":
		x.addresses = map[string]string{"admission": free[0], "health": free[1], "metrics": free[2]}
		here = append(here, "--admission-bind-address="+free[0], "--health-probe-bind-address="+free[1], "--metrics-bind-address="+free[2],
			"--dashboard-bind-address="+free[3])
	case "scheduler":
		x.addresses = map[string]string{"https": free[0], "metrics": free[0]}
		host, port, err := net.SplitHostPort(free[0])
		if err != nil {
			return nil, err
		}
		here = append(here, "--bind-address="+host, "--secure-port="+port, "--cert-dir="+filepath.Join(p.world.Folder, x.Pod.Name),
			"--authorization-always-allow-paths=/livez,/readyz,/metrics")
	default:
		return nil, fmt.Errorf("pod %s is of no known part", x.Pod.Name)
	}
	args, err := p.mount(x)
	if err != nil {
		return nil, err
	}
	for _, flag := range here {
		if name, _, _ := strings.Cut(flag, "="); p.knows(x.Version, x.Component, name) {
			args = append(args, flag)
		}
	}
	return args, nil
}

// mount writes the pod's ConfigMaps to files and returns the flags of the chart with
// the paths of those files.
func (p *Parts) mount(x *Part) ([]string, error) {
	args := slices.Clone(x.Pod.Spec.Containers[0].Args)
	for i := range x.Pod.Spec.Volumes {
		volume := &x.Pod.Spec.Volumes[i]
		at := slices.IndexFunc(x.Pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		if volume.ConfigMap == nil || at < 0 {
			continue
		}
		object, err := p.world.Client.CoreV1().ConfigMaps(Namespace).Get(p.world.Ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(p.world.Folder, x.Pod.Name, volume.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		for name, text := range object.Data {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], x.Pod.Spec.Containers[0].VolumeMounts[at].MountPath, folder)
		}
	}
	return args, nil
}

// knows reports whether a part has a flag: a version need not have those of the
// other one.
func (p *Parts) knows(v, component, flag string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.help[v] == "" {
		for _, c := range Components {
			text, err := exec.CommandContext(p.world.Ctx, p.world.Binaries[v], c, "--help").CombinedOutput()
			if err != nil {
				p.world.Fault("%s %s --help: %v", v, c, err)
			}
			for word := range strings.FieldsSeq(string(text)) {
				p.help[v] += c + word + " "
			}
		}
	}
	return strings.Contains(p.help[v], component+flag+" ")
}

// valueOf returns what a variable of the pod's only container is, as kubelet makes
// it.
func valueOf(pod *corev1.Pod, e *corev1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value
	case from.ResourceFieldRef != nil:
		q := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(strings.TrimPrefix(from.ResourceFieldRef.Resource, "limits."))]
		return strconv.FormatInt(q.Value(), 10)
	case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName":
		return pod.Spec.NodeName
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
		return pod.Namespace
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
		return pod.Name
	}
	panic(fmt.Sprintf("variable %s of pod %s: the test can't make it", e.Name, pod.Name))
}

const probeInterval = 200 * time.Millisecond

// probe says of the pod whether it is ready, until it is to end.
func (p *Parts) probe(x *Part) {
	w := p.world
	for {
		select {
		case <-x.stop:
			return
		case <-w.Ctx.Done():
			return
		case <-time.After(probeInterval):
		}
		x.turn.Lock()
		ended := isClosed(x.process.Exited()) && !x.killed
		if !ended && !x.killed {
			p.setReady(x, p.isReady(x))
		}
		x.turn.Unlock()
		if ended {
			w.Fault("%s (%s) ended by itself; the end of its log:\n%s", x.Pod.Name, x.Version, end(x.process.Log()))
			return
		}
	}
}

func end(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-2000):])
}

// setReady notes whether a part is ready, and says so of its pod.
func (p *Parts) setReady(x *Part, ready bool) {
	p.mu.Lock()
	changed := x.ready != ready
	x.ready = ready
	p.mu.Unlock()
	if changed {
		p.say(x, ready)
	}
}

// isReady asks the process as the pod's readiness probe does.
func (p *Parts) isReady(x *Part) bool {
	probe := x.Pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	scheme := strings.ToLower(string(probe.Scheme))
	_, err := machine.Get(p.world.Ctx, scheme+"://"+x.addresses[probe.Port.String()]+probe.Path)
	return err == nil
}

// say writes the pod's status.
func (p *Parts) say(x *Part, ready bool) {
	status := machine.Running(x.Pod)
	if !ready {
		for i := range status.Conditions {
			if status.Conditions[i].Type != corev1.PodInitialized {
				status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		status.ContainerStatuses[0].Ready = false
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.Pod.UID}, "status": status})
	if err == nil {
		_, err = p.world.Client.CoreV1().Pods(Namespace).Patch(p.world.Ctx, x.Pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && p.world.Ctx.Err() == nil {
		p.world.Fault("status of %s: %v", x.Pod.Name, err)
	}
}

// end ends the process as kubelet does, once its version's time is over: the hook
// first, then the signal, and after the time of grace by force.
func (p *Parts) end(x *Part) {
	w := p.world
	for p.turnOf(x.Component) == x.Version {
		if !machine.Sleep(w.Ctx, 50*time.Millisecond) {
			x.process.Kill()
			return
		}
	}
	if hook := x.Pod.Spec.Containers[0].Lifecycle; hook != nil && hook.PreStop != nil && hook.PreStop.Sleep != nil {
		machine.Sleep(w.Ctx, time.Duration(hook.PreStop.Sleep.Seconds)*time.Second)
	}
	w.Inspect(x)
	_ = x.process.Signal(syscall.SIGTERM)
	select {
	case <-x.process.Exited():
	case <-time.After(time.Duration(*x.Pod.Spec.TerminationGracePeriodSeconds) * time.Second):
		w.Fault("%s (%s) did not end within its time of grace", x.Pod.Name, x.Version)
	case <-w.Ctx.Done():
	}
	x.process.Kill()
}

// remove takes the pod out of the API server.
func (p *Parts) remove(x *Part) {
	err := p.world.Client.CoreV1().Pods(Namespace).Delete(p.world.Ctx, x.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(x.Pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && p.world.Ctx.Err() == nil {
		p.world.Fault("remove %s: %v", x.Pod.Name, err)
	}
}

// ErrNotReady is returned where a part is needed that is ready.
var ErrNotReady = errors.New("none is ready")
