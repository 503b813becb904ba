package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestWorkloads: pods of every kind of creator are completed and placed, or their
// creator gets an error.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.AddNodes(2)
	w.Scheduler("scheduler")
	template := func(app string) corev1.PodTemplateSpec {
		p := runnable(asks("gpu-core: 5, gpu-memory: 1Gi").Annotate(wire.AnnotationAllocated, "[]"), "")
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: p.Annotations}, Spec: p.Spec,
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
	labels := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	apps, none := w.Client.AppsV1(), metav1.CreateOptions{}
	_, err := apps.Deployments("default").Create(w.Ctx, &appsv1.Deployment{
		ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: labels("deployment"), Template: template("deployment")},
	}, none)
	w.Must(err)
	_, err = apps.StatefulSets("default").Create(w.Ctx, &appsv1.StatefulSet{
		ObjectMeta: meta("set"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: labels("set"), Template: template("set")},
	}, none)
	w.Must(err)
	_, err = apps.DaemonSets("default").Create(w.Ctx, &appsv1.DaemonSet{
		ObjectMeta: meta("daemon"), Spec: appsv1.DaemonSetSpec{Selector: labels("daemon"), Template: template("daemon")},
	}, none)
	w.Must(err)
	job := template("job")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err = w.Client.BatchV1().Jobs("default").Create(w.Ctx, &batchv1.Job{
		ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: job},
	}, none)
	w.Must(err)
	w.Create(runnable(asks("gpu-core: 5, gpu-memory: 1Gi"), "bare"))

	want := map[string]int{"deployment": 3, "set": 2, "daemon": 2, "job": 2, "": 1}
	w.Eventually("all pods run", time.Minute, func() error {
		got := map[string]int{}
		for _, p := range w.Pods() {
			if p.Status.Phase == corev1.PodRunning {
				got[p.Labels["app"]]++
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%v run, want %v", got, want)
		}
		return nil
	})
	for _, p := range w.Pods() {
		gputest.Equal(t, "pod "+p.Name+": booked", "5%/1024", booked(t, &p))
		if err := sound(&p); err != nil {
			t.Errorf("pod %s: %v", p.Name, err)
		}
	}
	w.Audit()

	// An invalid template: its owner's event says what to write.
	bad := template("bad")
	bad.Spec.Containers[0].Resources = runnable(asks("sgpu: 1, vcore: 120"), "").Spec.Containers[0].Resources
	_, err = apps.Deployments("default").Create(w.Ctx, &appsv1.Deployment{
		ObjectMeta: meta("bad"), Spec: appsv1.DeploymentSpec{Selector: labels("bad"), Template: bad},
	}, none)
	w.Must(err)
	w.Eventually("the event", time.Minute, func() error {
		events, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, limit("vcore", "120", sayPercent)) {
				return nil
			}
		}
		return fmt.Errorf("%d events, none says it", len(events.Items))
	})
}

// managerProcess is a manager as a process of its own, which can be killed.
func (w *world) managerProcess(address string, args ...string) *exec.Cmd {
	w.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(w.Ctx), bin("daybreak"), append([]string{
		"manager", "--kubeconfig=" + w.Kubeconfig("manager"), "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--admission-bind-address=" + address, "--admission-host=127.0.0.1", "--scheduler-name=default-scheduler",
	}, args...)...)
	log, err := os.Create(w.TempDir() + "/manager.log")
	w.Must(err)
	w.Cleanup(func() { _ = log.Close() })
	cmd.Stdout, cmd.Stderr = log, log
	w.Must(cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestManagerKilled: while 200 ordinary pods and 20 with cards are created, the
// manager is killed. The ordinary ones never notice; those with cards are
// refused with an error that says which webhook did not answer, and pass once
// there is a manager again.
func TestManagerKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.FreeAddress()
	w.Must(w.Webhook(w.Ctx, address))
	cmd := w.managerProcess(address)
	w.admits()

	var ordinary, withCards, refusedCards atomic.Int64
	var once sync.Once
	var group errgroup.Group
	group.SetLimit(8)
	for i := range 220 {
		group.Go(func() error {
			if i >= 60 {
				once.Do(func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				})
			}
			p := pod(fmt.Sprintf("p-%d", i))
			if i%11 == 0 {
				p = pod(fmt.Sprintf("p-%d", i), "sgpu=1", "vcore=1", "vmemory=1")
			}
			_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{})
			switch {
			case i%11 != 0 && err == nil:
				ordinary.Add(1)
			case i%11 != 0:
				t.Errorf("ordinary pod %d: %v", i, err)
			case err == nil:
				withCards.Add(1)
			case apierrors.IsInternalError(err) && strings.Contains(err.Error(), `failed calling webhook "pods.daybreak-gpu.io"`):
				if refusedCards.Add(1) == 1 {
					t.Logf("rejected: %v", err)
				}
			default:
				t.Errorf("pod with cards %d: %v", i, err)
			}
			return nil
		})
	}
	w.Must(group.Wait())
	t.Logf("manager killed: %d of 200 ordinary pods passed; of 20 with cards %d before, %d refused after", ordinary.Load(), withCards.Load(), refusedCards.Load())
	if ordinary.Load() != 200 || withCards.Load()+refusedCards.Load() != 20 || refusedCards.Load() < 10 {
		t.Error("not as it should be")
	}
	w.managerProcess(address)
	w.Eventually("pods with cards again", time.Minute, func() error {
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, pod("again", "sgpu=1"), metav1.CreateOptions{})
		return err
	})
}

// spreader passes connections on to the replicas in turn, as a Service does.
type spreader struct {
	net.Listener
	backends []string
	next     atomic.Int64
}

func (w *world) spread(backends ...string) *spreader {
	w.Helper()
	var config net.ListenConfig
	l, err := config.Listen(w.Ctx, "tcp", "127.0.0.1:0")
	w.Must(err)
	s := &spreader{Listener: l, backends: backends}
	w.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.pass(conn)
		}
	}()
	return s
}

func (s *spreader) pass(conn net.Conn) {
	defer conn.Close()
	var dialer net.Dialer
	to, err := dialer.DialContext(context.Background(), "tcp", s.backends[int(s.next.Add(1))%len(s.backends)])
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
	_, _ = io.Copy(conn, to)
}

// TestRotation: certificates of seconds, two replicas, pods created without a
// break. Both the serving certificate and the authority change, and no
// admission fails.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	short := manager.Admission{Validity: 12 * time.Second, Overlap: 2 * time.Second}
	replicas := []string{w.FreeAddress(), w.FreeAddress()}
	s := w.spread(replicas...)
	w.Must(w.Webhook(w.Ctx, s.Addr().String()))
	for i, address := range replicas {
		w.startManager(fmt.Sprintf("manager-%d", i), address, short)
	}
	w.admits()
	// The API server may still meet the replica that is not up yet.
	w.Eventually("both replicas serve", time.Minute, func() error {
		for _, address := range replicas {
			if err := w.handshake(address, w.caBundle()); err != nil {
				return err
			}
		}
		return nil
	})

	ctx, stop := context.WithCancel(w.Ctx)
	var created, shaken atomic.Int64
	var group errgroup.Group
	for worker := range 4 {
		group.Go(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				p := pod(fmt.Sprintf("p-%d-%d", worker, i), "sgpu=1")
				if _, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
				created.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
	}
	// The API server keeps its connections. Someone who makes a new one each
	// time, and trusts what the configuration said a second ago, is never sent
	// away either.
	group.Go(func() error {
		for ctx.Err() == nil {
			bundle := w.caBundle()
			for until := time.Now().Add(time.Second); time.Now().Before(until); {
				for _, address := range replicas {
					if err := w.handshake(address, bundle); err != nil {
						t.Errorf("handshake with %s: %v", address, err)
					}
					shaken.Add(1)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		return nil
	})
	serving, authorities := w.watchCertificates(40*time.Second, 4, 2)
	stop()
	w.Must(group.Wait())
	t.Logf("%d pods and %d handshakes over %d serving certificates and %d authorities, none failed", created.Load(), shaken.Load(), serving, authorities)
	if serving < 4 || authorities < 2 || created.Load() < 100 {
		t.Error("too little happened to say anything")
	}
}

// watchCertificates counts certificates in the Secret until there were as many
// as wanted, and three seconds more.
func (w *world) watchCertificates(patience time.Duration, wantServing, wantAuthorities int) (serving, authorities int) {
	w.Helper()
	seen, signed := map[string]bool{}, map[string]bool{}
	for deadline := time.Now().Add(patience + time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		secret, err := w.Client.CoreV1().Secrets(manager.DefaultNamespace).Get(w.Ctx, policy.Secret, metav1.GetOptions{})
		w.Must(err)
		seen[string(secret.Data["tls.crt"])] = true
		signed[string(secret.Data["ca.key"])] = true
		if len(seen) >= wantServing && len(signed) >= wantAuthorities {
			break
		}
	}
	time.Sleep(3 * time.Second)
	return len(seen), len(signed)
}

// caBundle returns whom the API server trusts now.
func (w *world) caBundle() []byte {
	c, err := w.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.Ctx, policy.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

func (w *world) handshake(address string, bundle []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return errors.New("no authority is published")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(context.WithoutCancel(w.Ctx), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// TestCertificateLost: the Secret is deleted and created empty, as helm upgrade does,
// or damaged, or the caBundle is overwritten; pods are admitted again at once.
func TestCertificateLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	secrets := w.Client.CoreV1().Secrets(manager.DefaultNamespace)
	configurations := w.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	before := w.caBundle()
	harm := map[string]func() error{
		"the Secret is deleted": func() error {
			err := secrets.Delete(w.Ctx, policy.Secret, metav1.DeleteOptions{})
			if err == nil {
				_, err = secrets.Create(w.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: policy.Secret}}, metav1.CreateOptions{})
			}
			return err
		},
		"the Secret is damaged": func() error {
			s, err := secrets.Get(w.Ctx, policy.Secret, metav1.GetOptions{})
			if err != nil {
				return err
			}
			s.Data["tls.key"] = []byte("garbage")
			_, err = secrets.Update(w.Ctx, s, metav1.UpdateOptions{})
			return err
		},
		"the caBundle is gone": func() error {
			c, err := configurations.Get(w.Ctx, policy.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			c.Webhooks[0].ClientConfig.CABundle = nil
			_, err = configurations.Update(w.Ctx, c, metav1.UpdateOptions{})
			return err
		},
	}
	for name, do := range harm {
		w.Must(do())
		w.Eventually(name+", and is put right", 30*time.Second, func() error {
			s, err := secrets.Get(w.Ctx, policy.Secret, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if _, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"]); err != nil {
				return err
			}
			if string(w.caBundle()) != string(before) {
				return errors.New("the caBundle is another")
			}
			return nil
		})
		w.admits()
	}
}
