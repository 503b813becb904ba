package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

// BenchmarkAdmission creates pods at a steady 100 a second, with cards and
// without, calls the webhook by itself at the same rate, and writes the status of
// a node and Events as kubelets do. An iteration is one of them: -benchtime 1000x
// is ten seconds of each.
func BenchmarkAdmission(b *testing.B) {
	ctx := b.Context()
	w := newWorld(b)
	address := w.FreeAddress()
	w.Must(w.Webhook(ctx, address))
	w.Manager("manager", manager.Config{Admission: manager.Admission{Address: address}})
	cluster, client := w.Cluster, w.Client
	create := func(p *corev1.Pod) error {
		_, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	for deadline := time.Now().Add(time.Minute); create(pod("first", "sgpu=1")) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("no pod with cards is admitted")
		}
	}
	for i := range busyNodes {
		must(b, busyNode(ctx, cluster, fmt.Sprint("busy-", i)))
	}
	run := 0
	for _, bc := range []struct {
		name string
		do   func(i int) error
	}{
		{"webhook", callWebhook(b, client, address)},
		{"create/ordinary", func(i int) error { return create(pod(fmt.Sprintf("ordinary-%d-%d", run, i))) }},
		{"create/cards", func(i int) error {
			return create(pod(fmt.Sprintf("cards-%d-%d", run, i), "sgpu=1", "vcore=1", "vmemory=1"))
		}},
		{"node status", func(i int) error {
			text := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"x","message":"%d"}]}}`, i)
			_, err := client.CoreV1().Nodes().Patch(ctx, fmt.Sprint("busy-", i%busyNodes), types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
			return err
		}},
		{"event", func(i int) error {
			e := eventOf("kubelet", "busy-0", corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "first"})
			e.Message = strconv.Itoa(i)
			_, err := client.CoreV1().Events("default").Create(ctx, e, metav1.CreateOptions{})
			return err
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			run++
			all, under := webhookCalls(b, client)
			checks, seconds := policyChecks(b, client)
			steady(b, 100, bc.do)
			if now, nowSeconds := policyChecks(b, client); now > checks {
				b.ReportMetric(1e6*(nowSeconds-seconds)/(now-checks), "µs/policies")
			}
			if now, nowUnder := webhookCalls(b, client); now > all {
				b.ReportMetric(100*float64(nowUnder-under)/float64(now-all), "%webhook<=5ms")
			}
		})
	}
}

// busyNodes are as many as make conflicts of two writes on one rare.
const busyNodes = 20

// busyNode creates a node as large as one that has run for a while.
func busyNode(ctx context.Context, cluster *local.Cluster, name string) error {
	client, err := kubernetes.NewForConfig(cluster.RESTAs("simulator"))
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 20 {
		n.Labels[fmt.Sprintf("example.com/label-%d", i)] = "value"
		n.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = strings.Repeat("x", 200)
	}
	if n, err = client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1, Names: []string{
			fmt.Sprintf("registry.example.com/image-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/image-%d:v1", i),
		}})
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{"images": n.Status.Images}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	return err
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// steady does b.N things at a steady rate, whether earlier ones are done or not,
// and reports how long they took.
func steady(b *testing.B, rate int, do func(i int) error) {
	b.Helper()
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		wg.Go(func() {
			begin := time.Now()
			if err := do(i); err != nil {
				b.Errorf("%d: %v", i, err)
			}
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	for _, p := range []float64{50, 99} {
		b.ReportMetric(float64(took[int(float64(len(took)-1)*p/100)].Microseconds())/1000, fmt.Sprintf("ms/p%g", p))
	}
}

// callWebhook returns what sends one AdmissionReview as the API server does.
func callWebhook(b *testing.B, client kubernetes.Interface, address string) func(int) error {
	b.Helper()
	c, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(b.Context(), policy.Name, metav1.GetOptions{})
	must(b, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle)
	caller := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	object, err := json.Marshal(pod("p", "sgpu=1", "vcore=1", "vmemory=1"))
	must(b, err)
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object}},
	})
	must(b, err)
	return func(int) error {
		req, err := http.NewRequestWithContext(context.WithoutCancel(b.Context()), http.MethodPost, "https://"+address+policy.Path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		answer, err := caller.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
			err = fmt.Errorf("answer %s", text)
		}
		return err
	}
}

var webhookSeconds = regexp.MustCompile(`apiserver_admission_webhook_admission_duration_seconds_bucket\{name="pods\.daybreak-gpu\.io",.*le="(0\.005|\+Inf)"\} (\d+)`)

// webhookCalls returns how often the API server called the webhook, and how many
// of the calls took 5 ms at most.
func webhookCalls(b *testing.B, client kubernetes.Interface) (all, under int) {
	b.Helper()
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	must(b, err)
	for _, m := range webhookSeconds.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(m[2]))
		must(b, err)
		if string(m[1]) == "+Inf" {
			all += n
		} else {
			under += n
		}
	}
	return all, under
}

var policySeconds = regexp.MustCompile(`apiserver_admission_controller_admission_duration_seconds_(sum|count)\{name="ValidatingAdmissionPolicy",operation="(?:CREATE|UPDATE)",.*\} ([0-9.e+-]+)`)

// policyChecks returns how many writes the API server showed to policies, and how
// long that took.
func policyChecks(b *testing.B, client kubernetes.Interface) (checks, seconds float64) {
	b.Helper()
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	must(b, err)
	for _, m := range policySeconds.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(m[2]), 64)
		must(b, err)
		if string(m[1]) == "count" {
			checks += n
		} else {
			seconds += n
		}
	}
	return checks, seconds
}
