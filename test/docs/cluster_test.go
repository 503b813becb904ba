package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// clusters are what pages are tried on. Each is started when a page first wants
// it, and a playground that does not look as new after a page is replaced.
type clusters struct {
	dir, bin   string
	say        func(format string, args ...any)
	playground *playground
	bare       *bare
	count      int
}

// playground is the playground, as a reader starts it.
type playground struct {
	dir, bin string
	cmd      *exec.Cmd
	ended    chan error
	fresh    string // its status when nothing has been done yet
}

// kubeconfig returns that of the cluster that the page wants.
func (c *clusters) kubeconfig(ctx context.Context, p *page) (string, error) {
	switch p.wants {
	case noCluster:
		return os.DevNull, nil
	case bareCluster:
		// Another one for each page: what a page installs in it stays.
		if c.bare != nil {
			c.bare.stop()
		}
		var err error
		if c.bare, err = startBare(ctx, c.folder(), c.bin); err != nil {
			return "", err
		}
		return c.bare.cluster.Kubeconfig("admin"), nil
	}
	if c.playground != nil {
		if err := c.playground.renew(ctx); err != nil {
			c.say("another playground: %v", err)
			c.playground.stop()
			c.playground = nil
		}
	}
	if c.playground == nil {
		var err error
		if c.playground, err = startPlayground(ctx, c.folder(), c.bin); err != nil {
			return "", err
		}
	}
	return c.playground.kubeconfig(), nil
}

func (c *clusters) folder() string {
	c.count++
	return filepath.Join(c.dir, fmt.Sprintf("cluster-%d", c.count))
}

func (c *clusters) stop() {
	if c.playground != nil {
		c.playground.stop()
	}
	if c.bare != nil {
		c.bare.stop()
	}
}

// startPlayground returns when the playground is ready.
func startPlayground(ctx context.Context, dir, bin string) (*playground, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	p := &playground{dir: dir, bin: bin, ended: make(chan error, 1)}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.CommandContext(ctx, filepath.Join(bin, "playground"), "--port-dashboard", "0")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // it must not outlive us
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = graceful
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	limit := time.After(patience)
	for {
		text, err := os.ReadFile(out.Name())
		switch {
		case err != nil:
			return nil, err
		case strings.Contains(string(text), "ready\n"):
			p.fresh, err = p.status(ctx)
			return p, err
		}
		select {
		case err := <-p.ended:
			return nil, fmt.Errorf("the playground has ended: %w\n%s", err, text)
		case <-limit:
			p.stop()
			return nil, fmt.Errorf("the playground is not ready after %s:\n%s", patience, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *playground) kubeconfig() string { return filepath.Join(p.dir, "playground.kubeconfig") }

func (p *playground) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
}

// command runs one of the binaries on the playground.
func (p *playground) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), append(args, "--kubeconfig", p.kubeconfig())...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// status is all that pages can distinguish: cards, their health, and pods.
func (p *playground) status(ctx context.Context) (string, error) {
	return p.command(ctx, "daybreak", "status", "-o", "wide")
}

// renew removes what a page has left, or says why the playground is not as it was
// at the start.
func (p *playground) renew(ctx context.Context) error {
	if err := p.clean(ctx); err != nil {
		return err
	}
	status, err := p.status(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(p.fresh, status); diff != "" {
		return fmt.Errorf("it does not look as new (-new +now):\n%s", diff)
	}
	return nil
}

// clean removes what pages make: pods and what makes them, namespaces, and events
// that show them.
func (p *playground) clean(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: new(metav1.DeletePropagationBackground)}
	all := metav1.ListOptions{}
	var failures []error
	for _, namespace := range namespaces.Items {
		name := namespace.Name
		if !slices.Contains(ownNamespaces, name) {
			failures = append(failures, client.CoreV1().Namespaces().Delete(ctx, name, now))
		}
		failures = append(failures,
			client.AppsV1().Deployments(name).DeleteCollection(ctx, now, all),
			client.AppsV1().ReplicaSets(name).DeleteCollection(ctx, now, all),
			client.AppsV1().StatefulSets(name).DeleteCollection(ctx, now, all),
			client.AppsV1().DaemonSets(name).DeleteCollection(ctx, now, all),
			client.BatchV1().Jobs(name).DeleteCollection(ctx, now, all),
			client.CoreV1().Pods(name).DeleteCollection(ctx, now, all),
			client.CoreV1().Events(name).DeleteCollection(ctx, now, all))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, graceful, true, func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods("").List(ctx, all)
		if err != nil || len(pods.Items) > 0 {
			return false, err
		}
		namespaces, err := client.CoreV1().Namespaces().List(ctx, all)
		return err == nil && len(namespaces.Items) == len(ownNamespaces), err
	})
}

// ownNamespaces are those of a playground that is new.
var ownNamespaces = []string{"default", "daybreak-system", "kube-system", "kube-public", "kube-node-lease"}

// bare is a cluster without Daybreak: kube-scheduler, and nodes that run
// pods in name only.
type bare struct {
	cluster   *local.Cluster
	simulator *local.Simulator
	scheduler *local.Process
}

func startBare(ctx context.Context, dir, bin string) (*bare, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	cluster, err := local.Start(ctx, local.Config{Dir: dir, Executable: filepath.Join(bin, "playground")})
	if err != nil {
		return nil, err
	}
	b := &bare{cluster: cluster}
	if err := b.populate(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bare) populate(ctx context.Context) error {
	simulator, err := local.NewSimulator(ctx, b.cluster.REST(), local.WithoutAgents())
	if err != nil {
		return err
	}
	b.simulator = simulator
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for _, name := range []string{"gpu-1", "gpu-2"} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
			Status: corev1.NodeStatus{
				Capacity: amounts, Allocatable: amounts,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
			},
		}
		if err := simulator.AdoptNode(ctx, node); err != nil {
			return err
		}
	}
	b.scheduler = harness.NewPlainScheduler(b.cluster, "", "kube-scheduler", "--leader-elect=false", "--kubeconfig="+b.cluster.Kubeconfig("admin"))
	return b.scheduler.Start()
}

func (b *bare) stop() {
	if b.scheduler != nil {
		b.scheduler.Stop()
	}
	if b.simulator != nil {
		b.simulator.Stop()
	}
	b.cluster.Stop()
}
