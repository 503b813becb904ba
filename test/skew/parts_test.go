package skew

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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// components are Daybreak's parts.
var components = []string{"agent", "manager", "scheduler"}

// parts is the kubelet of Daybreak's own pods, on all nodes.
type parts struct {
	world   *world
	library string
	// devices are the flags that lead an agent to the devices, by machine.
	devices map[string][]string
	life    sync.WaitGroup

	mu sync.Mutex
	// turn is which version of a component may run: a pod of another one waits, as
	// for its image, and one that is to end goes on until its version's time is over.
	turn map[string]version
	pods map[types.UID]*part
	next int
	help map[version]string
}

// part is a pod of Daybreak's, with its process.
type part struct {
	pod       *corev1.Pod
	component string
	version   version
	process   *local.Process
	// addresses are where it listens, by the names of its ports.
	addresses map[string]string
	// stop is closed when the pod is to end.
	stop     chan struct{}
	stopping bool
	ready    bool
	// turn is held while the process is started or ended.
	turn sync.Mutex
	// lines are those of its metrics that were logged.
	lines []string
}

func newParts(w *world, library string) *parts {
	p := &parts{world: w, library: library, devices: map[string][]string{}, turn: map[string]version{}, pods: map[types.UID]*part{}, help: map[version]string{}}
	for _, c := range components {
		p.turn[c] = previous
	}
	return p
}

// wait returns when all processes have ended, after the world.
func (p *parts) wait() { p.life.Wait() }

// allow gives a version of a component its turn.
func (p *parts) allow(component string, v version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn[component] = v
}

// has reports whether it is the turn of the pod's version.
func (p *parts) has(x *part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turn[x.component] == x.version
}

// ready returns the parts of a component that are, beginning with another one each
// time.
func (p *parts) ready(component string) []*part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*part
	for _, uid := range slices.Sorted(maps.Keys(p.pods)) {
		if x := p.pods[uid]; x.component == component && x.ready && !x.stopping {
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

// running returns the parts that have a process, in the order of their names.
func (p *parts) running() []*part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*part
	for _, x := range p.pods {
		if x.process != nil {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b *part) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	return list
}

// watch follows Daybreak's pods until the world ends.
func (p *parts) watch() {
	list := cache.NewListWatchFromClient(p.world.client.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: list, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { p.see(machine.PodIn(obj)) }, UpdateFunc: func(_, obj any) { p.see(machine.PodIn(obj)) },
		},
	})
	controller.Run(p.world.ctx.Done())
}

// see takes in what the API server says of a pod.
func (p *parts) see(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.pods[pod.UID]
	if x == nil {
		_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
		x = &part{pod: pod, component: pod.Spec.Containers[0].Name, version: version(tag), stop: make(chan struct{})}
		p.pods[pod.UID] = x
		p.life.Go(func() { p.run(x) })
	}
	if pod.DeletionTimestamp != nil && !x.stopping {
		x.stopping = true
		close(x.stop)
	}
}

// run is the life of a pod.
func (p *parts) run(x *part) {
	w := p.world
	defer func() {
		p.mu.Lock()
		delete(p.pods, x.pod.UID)
		p.mu.Unlock()
	}()
	for !p.has(x) {
		if isClosed(x.stop) {
			p.remove(x)
			return
		}
		if !machine.Sleep(w.ctx, 50*time.Millisecond) {
			return
		}
	}
	if err := p.start(x); err != nil {
		w.fault("%s did not start: %v", x.pod.Name, err)
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

// restart ends the process and starts it again in its pod, and returns when it is
// ready.
func (p *parts) restart(x *part) error {
	x.turn.Lock()
	p.setReady(x, false)
	x.process.Stop()
	err := x.process.Start()
	x.turn.Unlock()
	if err != nil {
		return err
	}
	return machine.Until(p.world.ctx, time.Minute, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !x.ready && !x.stopping {
			return fmt.Errorf("%s (%s), which was started again, is not ready", x.pod.Name, x.version)
		}
		return nil
	})
}

// start starts the process of a pod.
func (p *parts) start(x *part) error {
	kubeconfig, err := p.kubeconfig(x)
	if err != nil {
		return err
	}
	args, err := p.args(x, kubeconfig)
	if err != nil {
		return err
	}
	process := p.world.NewProcess(x.pod.Name+"-"+string(x.version), x.version.binary(), args...)
	for _, e := range x.pod.Spec.Containers[0].Env {
		process.Env = append(process.Env, e.Name+"="+valueOf(x.pod, &e))
	}
	if x.component == "agent" {
		process.Env = append(process.Env, fake.EnvConfig+"="+p.machineOf(x).Driver())
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
func (p *parts) kubeconfig(x *part) (string, error) {
	w := p.world
	token, err := w.client.CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, x.pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(24 * 3600)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: x.pod.Name, UID: x.pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return w.Kubeconfig(x.pod.Name), w.WriteKubeconfig(x.pod.Name, &clientcmdapi.AuthInfo{Token: token.Status.Token})
}

// args returns the flags that the chart gives the part, followed by those that all
// parts on one machine need: addresses, files, and where the node's things are.
func (p *parts) args(x *part, kubeconfig string) ([]string, error) {
	free, err := local.FreeAddresses(p.world.ctx, 4)
	if err != nil {
		return nil, err
	}
	here := []string{"--kubeconfig=" + kubeconfig}
	switch x.component {
	case "agent":
		x.addresses = map[string]string{"health": free[0], "metrics": free[0]}
		here = append(here, p.machineOf(x).AgentArgs(p.library, free[0])...)
		here = append(here, p.devices[x.pod.Spec.NodeName]...)
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
		here = append(here, "--bind-address="+host, "--secure-port="+port, "--cert-dir="+filepath.Join(p.world.dir, x.pod.Name),
			"--authorization-always-allow-paths=/livez,/readyz,/metrics")
	default:
		return nil, fmt.Errorf("pod %s is of no known part", x.pod.Name)
	}
	args := slices.Clone(x.pod.Spec.Containers[0].Args)
	for _, flag := range here {
		if name, _, _ := strings.Cut(flag, "="); p.knows(x.version, x.component, name) {
			args = append(args, flag)
		}
	}
	return args, nil
}

// knows reports whether a part has a flag: a version need not have those of the
// other one.
func (p *parts) knows(v version, component, flag string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.help[v] == "" {
		for _, c := range components {
			text, err := exec.CommandContext(p.world.ctx, v.binary(), c, "--help").CombinedOutput()
			if err != nil {
				p.world.fault("%s %s --help: %v", v, c, err)
			}
			for word := range strings.FieldsSeq(string(text)) {
				p.help[v] += c + word + " "
			}
		}
	}
	return strings.Contains(p.help[v], component+flag+" ")
}

func (p *parts) machineOf(x *part) *machine.Machine {
	for _, m := range p.world.machines {
		if m.Node == x.pod.Spec.NodeName {
			return m
		}
	}
	panic("no machine is called " + x.pod.Spec.NodeName)
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
func (p *parts) probe(x *part) {
	w := p.world
	for {
		select {
		case <-x.stop:
			return
		case <-w.ctx.Done():
			return
		case <-time.After(probeInterval):
		}
		x.turn.Lock()
		ended, ready := isClosed(x.process.Exited()), p.isReady(x)
		if !ended {
			p.setReady(x, ready)
		}
		x.turn.Unlock()
		if ended {
			w.fault("%s (%s) ended by itself; the end of its log:\n%s", x.pod.Name, x.version, end(x.process.Log()))
			return
		}
	}
}

func end(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-2000):])
}

// setReady notes whether a part is ready, and says so of its pod.
func (p *parts) setReady(x *part, ready bool) {
	p.mu.Lock()
	changed := x.ready != ready
	x.ready = ready
	p.mu.Unlock()
	if changed {
		p.say(x, ready)
	}
}

// isReady asks the process as the pod's readiness probe does.
func (p *parts) isReady(x *part) bool {
	probe := x.pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	scheme := strings.ToLower(string(probe.Scheme))
	_, err := machine.Get(p.world.ctx, scheme+"://"+x.addresses[probe.Port.String()]+probe.Path)
	return err == nil
}

// say writes the pod's status.
func (p *parts) say(x *part, ready bool) {
	status := machine.Running(x.pod)
	if !ready {
		for i := range status.Conditions {
			if status.Conditions[i].Type != corev1.PodInitialized {
				status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		status.ContainerStatuses[0].Ready = false
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.pod.UID}, "status": status})
	if err == nil {
		_, err = p.world.client.CoreV1().Pods(namespace).Patch(p.world.ctx, x.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && p.world.ctx.Err() == nil {
		p.world.fault("status of %s: %v", x.pod.Name, err)
	}
}

// end ends the process as kubelet does, once its version's time is over: the hook
// first, then the signal, and after the time of grace by force.
func (p *parts) end(x *part) {
	w := p.world
	for p.has(x) {
		if !machine.Sleep(w.ctx, 50*time.Millisecond) {
			x.process.Kill()
			return
		}
	}
	if hook := x.pod.Spec.Containers[0].Lifecycle; hook != nil && hook.PreStop != nil && hook.PreStop.Sleep != nil {
		machine.Sleep(w.ctx, time.Duration(hook.PreStop.Sleep.Seconds)*time.Second)
	}
	w.inspect(x)
	_ = x.process.Signal(syscall.SIGTERM)
	select {
	case <-x.process.Exited():
	case <-time.After(time.Duration(*x.pod.Spec.TerminationGracePeriodSeconds) * time.Second):
		w.fault("%s (%s) did not end within its time of grace", x.pod.Name, x.version)
	case <-w.ctx.Done():
	}
	x.process.Kill()
}

// remove takes the pod out of the API server.
func (p *parts) remove(x *part) {
	err := p.world.client.CoreV1().Pods(namespace).Delete(p.world.ctx, x.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(x.pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && p.world.ctx.Err() == nil {
		p.world.fault("remove %s: %v", x.pod.Name, err)
	}
}

var errNotReady = errors.New("none is ready")
