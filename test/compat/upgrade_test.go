package compat

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// plane is a control plane of another version with simulated nodes of eight cards,
// without the chart: for tests of the scheduler alone.
type plane struct{ *harness.World }

// serverOf returns the binary of an API server, and skips the test without one.
func serverOf(t *testing.T, version string) string {
	t.Helper()
	path := bin(filepath.Join("compat", version, "kube-apiserver"))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no API server %s: %v", version, err)
	}
	return path
}

func newPlane(t *testing.T, version string, nodes int) *plane {
	t.Helper()
	p := &plane{harness.New(t, os.Getenv(envBin), local.Config{APIServer: serverOf(t, version)})}
	p.Simulate()
	p.AddNodes(nodes)
	return p
}

func logOf(s *local.Process) []byte {
	text, _ := os.ReadFile(s.Log())
	return text
}

// mixed returns a pod: a slice in HAMi's words, a slice in Koordinator's, a whole
// card, and a pod without cards, in turns.
func mixed(i int) *corev1.Pod {
	kinds := []struct {
		name   string
		limits map[corev1.ResourceName]string
	}{
		{"hami", map[corev1.ResourceName]string{"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "10", "metax-tech.com/vmemory": "4"}},
		{"koordinator", map[corev1.ResourceName]string{
			"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-memory": "1Gi", "koordinator.sh/gpu-core": "10", "metax-tech.com/sgpu": "1",
		}},
		{"plain", nil},
		{"hami-too", map[corev1.ResourceName]string{"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "5", "metax-tech.com/vmemory": "1"}},
		{"whole", map[corev1.ResourceName]string{"metax-tech.com/gpu": "1"}},
	}
	kind := kinds[i%len(kinds)]
	limits := corev1.ResourceList{}
	for name, amount := range kind.limits {
		limits[name] = resource.MustParse(amount)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", kind.name, i), Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: limits}}},
		},
	}
}

// place creates pods and waits until all are bound.
func (p *plane) place(s *local.Process, from, to int) {
	p.Helper()
	for i := from; i < to; i++ {
		_, err := p.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(p.Context(), mixed(i), metav1.CreateOptions{})
		p.Must(err)
	}
	p.eventually(s, "all pods bound", func() error {
		list, err := p.Client.CoreV1().Pods(metav1.NamespaceDefault).List(p.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are pending, such as %s: %+v", len(list.Items), list.Items[0].Name, list.Items[0].Status.Conditions)
		}
		return err
	})
}

// eventually waits until the check passes; the scheduler must not end meanwhile.
func (p *plane) eventually(s *local.Process, what string, check func() error) {
	p.Helper()
	p.Eventually(what, 3*time.Minute, func() error {
		select {
		case <-s.Exited():
			p.GiveUp(what + ": the scheduler has ended")
		default:
		}
		return check()
	})
}

// set returns the scheduler's line about the API server's version.
func set(s *local.Process) string {
	for line := range bytes.Lines(logOf(s)) {
		if bytes.Contains(line, []byte("Features are set for the API server")) {
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}

// TestScheduler: on each server 200 pods of both dialects are placed.
func TestScheduler(t *testing.T) {
	for version := range strings.FieldsSeq(os.Getenv(envServers)) {
		t.Run(version, func(t *testing.T) {
			if version == ownServer {
				t.Skip("test/integration has it")
			}
			p := newPlane(t, version, 10)
			s := p.Scheduler("scheduler")
			begin := time.Now()
			p.place(s, 0, 200)
			t.Logf("200 pods in %v; %s", time.Since(begin).Round(time.Millisecond), set(s))
			p.Audit()
			emulated := max(version, "1.33") // the oldest that kube-scheduler 1.36 can emulate
			if line := set(s); !strings.Contains(line, fmt.Sprintf("emulated=%q", emulated)) || !strings.Contains(line, fmt.Sprintf("version=%q", version)) {
				t.Errorf("the scheduler's setting: %s", line)
			}
			if version == "1.23" {
				p.limitsStorage(s)
			}
		})
	}
}

// limitsStorage: a pod goes where there is room for its volume, by the
// CSIStorageCapacities that the server has as v1beta1 only.
func (p *plane) limitsStorage(s *local.Process) {
	p.Helper()
	const driver, zone = "disk.example.com", "example.com/zone"
	ctx := p.Context()
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	p.Must(err)
	roomy := nodes.Items[len(nodes.Items)-1].Name // the pods so far fill the first ones
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, zone, name)
		_, err := p.Client.CoreV1().Nodes().Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{})
		p.Must(err)
		size := "1Gi"
		if name == roomy {
			size = "100Gi"
		}
		_, err = p.Client.StorageV1beta1().CSIStorageCapacities("default").Create(ctx, &storagev1beta1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Name: name}, StorageClassName: "disk", Capacity: new(resource.MustParse(size)),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zone: name}},
		}, metav1.CreateOptions{})
		p.Must(err)
	}
	_, err = p.Client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)},
	}, metav1.CreateOptions{})
	p.Must(err)
	_, err = p.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: driver, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	p.Must(err)
	claims := p.Client.CoreV1().PersistentVolumeClaims("default")
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("disk"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")}},
		},
	}, metav1.CreateOptions{})
	p.Must(err)
	pod := mixed(0)
	pod.Name = "with-volume"
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	_, err = p.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	p.Must(err)
	p.eventually(s, "a node for the volume", func() error {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// No provisioner makes the volume: the scheduler's choice is all there is.
		if got := claim.Annotations["volume.kubernetes.io/selected-node"]; got != roomy {
			return fmt.Errorf("%q is selected, want %s", got, roomy)
		}
		return nil
	})
}

// TestUpgrade: while a control plane is upgraded, API servers of two versions
// answer behind one address, in turns. The scheduler keeps running and places pods.
// COMPAT_UPGRADE shortens the five minutes.
func TestUpgrade(t *testing.T) {
	serverOf(t, "1.30")
	p := newPlane(t, "1.28", 4)
	duration := 5 * time.Minute
	if text := os.Getenv("COMPAT_UPGRADE"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		p.Must(err)
	}
	alternating := newAlternating(t, strings.TrimPrefix(p.URL(), "https://"), p.second(serverOf(t, "1.30")))
	config, err := clientcmd.LoadFromFile(p.Kubeconfig("scheduler"))
	p.Must(err)
	for _, c := range config.Clusters {
		c.Server = "https://" + alternating.listener.Addr().String()
	}
	kubeconfig := filepath.Join(t.TempDir(), "scheduler.kubeconfig")
	p.Must(clientcmd.WriteToFile(*config, kubeconfig))
	s := p.Scheduler("scheduler", "--kubeconfig="+kubeconfig)

	placed, cuts := 0, 0
	for end := time.Now().Add(duration); time.Now().Before(end); cuts++ {
		p.place(s, placed, placed+10)
		p.Audit()
		for i := placed; i < placed+10; i++ {
			p.Must(p.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(p.Context(), mixed(i).Name, metav1.DeleteOptions{}))
		}
		placed += 10
		time.Sleep(2 * time.Second)
		alternating.cut()
	}
	if line := set(s); !strings.Contains(line, `version="1.28"`) || !strings.Contains(line, `newest="1.30"`) {
		t.Errorf("the scheduler's setting: %s", line)
	}
	t.Logf("%d pods placed in %v, connections cut %d times; %s", placed, duration, cuts, set(s))
}

// second starts an API server of another version on the same etcd and returns its
// address.
func (p *plane) second(binary string) string {
	p.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.APIServer.PID()))
	p.Must(err)
	ports, err := local.FreePorts(p.Context(), 1)
	p.Must(err)
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	args = append(args, fmt.Sprintf("--secure-port=%d", ports[0]))
	other := p.NewProcess("kube-apiserver-2", binary, args[1:]...)
	p.Must(other.Start())
	p.Cleanup(other.Kill)
	config := p.REST()
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	client, err := kubernetes.NewForConfig(config)
	p.Must(err)
	p.Must(machine.Until(p.Context(), time.Minute, func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(p.Context())
		return err
	}))
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// alternating leads every connection to the next of several servers.
type alternating struct {
	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
}

func newAlternating(t *testing.T, servers ...string) *alternating {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	gputest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	a := &alternating{listener: l}
	go func() {
		for i := 0; ; i++ {
			from, err := l.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.open = append(a.open, from)
			a.mu.Unlock()
			go func() {
				defer from.Close()
				to, err := new(net.Dialer).DialContext(t.Context(), "tcp", servers[i%len(servers)])
				if err != nil {
					return
				}
				defer to.Close()
				machine.Pipe(t.Context(), from, to)
			}()
		}
	}()
	return a
}

// cut ends all connections, so that clients come to other servers.
func (a *alternating) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.open {
		_ = c.Close()
	}
	a.open = nil
}
