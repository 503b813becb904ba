package cert

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	namespace     = "daybreak-system"
	secretName    = "webhook"
	configuration = "daybreak"
)

// office is a cluster with a configuration and replicas that share it.
type office struct {
	*testing.T
	client *fake.Clientset
	clock  *testingclock.FakeClock
}

func newOffice(t *testing.T) *office {
	o := &office{T: t, clock: testingclock.NewFakeClock(start)}
	o.client = fake.NewClientset(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "pods.daybreak-gpu.io"}, {Name: "privileged.pods.daybreak-gpu.io"}},
	}, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "pods.policies.daybreak-gpu.io"}},
	}, emptySecret())
	return o
}

// emptySecret is what an installation creates.
func emptySecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}}
}

// createSecret is what an administrator does when it is missing.
func (o *office) createSecret() {
	o.Helper()
	gputest.Must(o, o.client.Tracker().Create(corev1.SchemeGroupVersion.WithResource("secrets"), emptySecret(), namespace))
}

func (o *office) replica() *Keeper {
	o.Helper()
	options := ninety
	options.Client, options.Namespace, options.Secret, options.Configuration, options.Clock = o.client, namespace, secretName, configuration, o.clock
	options.Validating = true
	k, err := New(options)
	gputest.Must(o, err)
	return k
}

func (o *office) step(replicas ...*Keeper) {
	o.Helper()
	for _, k := range replicas {
		gputest.Must(o, k.Step(o.Context()))
	}
}

// bundle returns the authorities that all webhooks trust, which must be the same.
func (o *office) bundle() []byte {
	o.Helper()
	c, err := o.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(o.Context(), configuration, metav1.GetOptions{})
	gputest.Must(o, err)
	v, err := o.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(o.Context(), configuration, metav1.GetOptions{})
	gputest.Must(o, err)
	first, others := string(c.Webhooks[0].ClientConfig.CABundle), []string{string(c.Webhooks[1].ClientConfig.CABundle), string(v.Webhooks[0].ClientConfig.CABundle)}
	if first != others[0] || first != others[1] {
		o.Fatal("the webhooks trust different authorities")
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

// works checks that the API server can call every replica.
func (o *office) works(replicas ...*Keeper) {
	o.Helper()
	for _, k := range replicas {
		gputest.Must(o, k.Ready())
		verify(o.T, o.bundle(), serving(o.T, k).Leaf, "127.0.0.1", o.clock.Now())
	}
}

func serving(t *testing.T, k *Keeper) *tls.Certificate {
	t.Helper()
	c, err := k.GetCertificate(nil)
	gputest.Must(t, err)
	return c
}

func (o *office) secret() *corev1.Secret {
	o.Helper()
	s, err := o.client.CoreV1().Secrets(namespace).Get(o.Context(), secretName, metav1.GetOptions{})
	gputest.Must(o, err)
	return s
}

func (o *office) putSecret(data map[string][]byte) {
	o.Helper()
	s := o.secret()
	s.Data = data
	_, err := o.client.CoreV1().Secrets(namespace).Update(o.Context(), s, metav1.UpdateOptions{})
	gputest.Must(o, err)
}

func (o *office) deleteSecret() {
	o.Helper()
	gputest.Must(o, o.client.CoreV1().Secrets(namespace).Delete(o.Context(), secretName, metav1.DeleteOptions{}))
}

func TestFirstStart(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	if _, err := k.GetCertificate(nil); err == nil || k.Ready() == nil {
		t.Fatal("there is a certificate before the first step")
	}
	o.step(k)
	o.works(k)
	writes := len(o.client.Actions())
	o.step(k)
	for _, a := range o.client.Actions()[writes:] {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s while nothing was due", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestReplicasRotate: two replicas, of which one is slow, for two years. At no
// time is one of them not trusted.
func TestReplicasRotate(t *testing.T) {
	o := newOffice(t)
	fast, slow := o.replica(), o.replica()
	o.step(fast, slow)
	seen := map[string]bool{}
	for tick := range 2 * 365 {
		o.clock.Step(day)
		o.step(fast)
		o.works(fast, slow)
		if tick%3 == 0 {
			o.step(slow)
			o.works(fast, slow)
		}
		seen[string(serving(t, fast).Certificate[0])] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d certificates in two years", len(seen))
	}
}

// TestMissingSecret: without the Secret, replicas serve what they have and report what
// to do; none creates it. When it is there again, empty, they write it from memory.
func TestMissingSecret(t *testing.T) {
	o := newOffice(t)
	k, other := o.replica(), o.replica()
	o.step(k, other)
	before := serving(t, k).Leaf
	o.deleteSecret()
	for _, replica := range []*Keeper{k, other} {
		o.missing(replica)
		if !serving(t, replica).Leaf.Equal(before) {
			t.Error("what a replica remembered was thrown away, although it was good")
		}
	}
	o.works(k, other)
	o.createSecret()
	o.step(k, other)
	if !serving(t, k).Leaf.Equal(before) || !serving(t, other).Leaf.Equal(before) {
		t.Error("what a replica remembered was not written again")
	}
	o.works(k, other)
	if _, err := decode(o.secret().Data); err != nil {
		t.Errorf("the Secret was not written again: %v", err)
	}

	// All replicas end, and their memory with them.
	o.deleteSecret()
	k = o.replica()
	o.missing(k)
	if k.Ready() == nil {
		t.Error("ready without a certificate")
	}
	o.createSecret()
	o.step(k)
	if serving(t, k).Leaf.Equal(before) {
		t.Error("a certificate whose key is lost is served")
	}
	o.works(k)
	o.step(other) // one that has slept through it
	o.works(k, other)
	if slices.ContainsFunc(o.client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "create" }) {
		t.Error("a replica creates something")
	}
}

// missing checks that a step reports that there is no Secret, and what to do.
func (o *office) missing(k *Keeper) {
	o.Helper()
	gputest.ErrorHas(o, "without the Secret", "kubectl -n "+namespace+" create secret generic "+secretName, k.Step(o.Context()))
}

func TestGarbageSecret(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	o.step(k)
	before := serving(t, k).Leaf
	o.putSecret(map[string][]byte{entryAuthority + suffixCert: []byte("garbage"), "else": nil})
	o.step(k)
	o.works(k)
	if !serving(t, k).Leaf.Equal(before) {
		t.Error("what was good was thrown away")
	}
	o.putSecret(map[string][]byte{entryAuthority + suffixCert: []byte("garbage")})
	k = o.replica()
	o.step(k)
	o.works(k)
	if _, ok := o.secret().Data["else"]; ok {
		t.Error("what is not ours was kept")
	}
}

func TestExpiredSecret(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	o.step(k)
	o.clock.Step(2 * 365 * day) // the cluster slept
	if k.Ready() == nil {
		t.Error("ready with an expired certificate")
	}
	o.step(k)
	o.works(k)
	late := o.replica()
	o.step(late)
	o.works(k, late)
}

// TestServingExpired: the certificate has expired and the authority has not, as
// after a long night.
func TestServingExpired(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	o.step(k)
	trusted := o.bundle()
	o.clock.Step(100 * day)
	o.step(k)
	o.works(k)
	verify(t, trusted, serving(t, k).Leaf, "127.0.0.1", o.clock.Now()) // by the same authority
}

func TestOverwrittenBundle(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	o.step(k)
	c, err := o.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), configuration, metav1.GetOptions{})
	gputest.Must(t, err)
	c.Webhooks[1].ClientConfig.CABundle = []byte("garbage")
	_, err = o.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(t.Context(), c, metav1.UpdateOptions{})
	gputest.Must(t, err)
	o.step(k)
	o.works(k)
}

// TestConflict: another replica writes between our reading and writing.
func TestConflict(t *testing.T) {
	for name, begun := range map[string]bool{"at the first start": false, "at a renewal": true} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			k := o.replica()
			if begun {
				o.step(o.replica())
				o.clock.Step(61 * day)
			}
			theirs, err := newState(&ninety, o.clock.Now())
			gputest.Must(t, err)
			once := true
			o.client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !once {
					return false, nil, nil
				}
				once = false
				return true, nil, o.overtake(theirs)
			})
			o.step(k)
			if once || !serving(t, k).Leaf.Equal(theirs.serving.Leaf) {
				t.Error("the replicas do not agree")
			}
			o.works(k)
		})
	}
}

// overtake writes a Secret past the client and returns the API server's answer to
// the second writer.
func (o *office) overtake(s *state) error {
	o.Helper()
	data, err := s.encode()
	if err != nil {
		return err
	}
	secret := emptySecret()
	secret.Data = data
	if err := o.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), secret, namespace); err != nil {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("secrets"), secretName, errors.New("changed"))
}

// TestUnreachable: while the API server does not answer, what was there is
// served.
func TestUnreachable(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	o.step(k)
	o.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("down")
	})
	if err := k.Step(t.Context()); err == nil {
		t.Error("a step without an API server")
	}
	if err := k.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	serving(t, k)
}

func TestNoConfiguration(t *testing.T) {
	o := newOffice(t)
	o.client = fake.NewClientset()
	k := o.replica()
	if err := k.Step(t.Context()); err == nil || k.Ready() == nil {
		t.Error("ready although no API server would call")
	}
}

// TestStart: the loop reacts to changes at once, and acts by itself as time
// passes.
func TestStart(t *testing.T) {
	o := newOffice(t)
	k := o.replica()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Start(ctx) }()
	wait := func(what string, check func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !check(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not after 20s", what)
			}
		}
	}
	wait("first certificate", func() bool { return k.Ready() == nil })
	first := serving(t, k).Leaf

	wait("the watches", func() bool { // the fake API server forgets what happens between a list and its watch
		watches := 0
		for _, action := range o.client.Actions() {
			if action.GetVerb() == "watch" {
				watches++
			}
		}
		return watches >= 3
	})
	o.deleteSecret() // no time passes
	o.createSecret()
	wait("the Secret is written again", func() bool {
		secret, err := o.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
		return err == nil && len(secret.Data) > 0
	})
	wait("the loop waits", o.clock.HasWaiters)
	o.clock.Step(61 * day)
	wait("a new certificate", func() bool {
		o.clock.Step(time.Minute) // the loop may have been in the middle of a step before
		return !serving(t, k).Leaf.Equal(first)
	})
	stop()
	gputest.Check(t, <-ended)
}

func TestNew(t *testing.T) {
	for name, o := range map[string]Options{
		"no host":                        {},
		"an empty host":                  {Hosts: []string{""}},
		"a negative validity":            {Hosts: []string{"a"}, Validity: -time.Hour},
		"an overlap beyond the validity": {Hosts: []string{"a"}, Validity: time.Hour, Overlap: 2 * time.Hour},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no complaint", name)
		}
	}
	k, err := New(Options{Hosts: []string{"a"}})
	gputest.Must(t, err)
	if k.Validity != DefaultValidity || k.Overlap != DefaultOverlap || k.NeedLeaderElection() {
		t.Errorf("%+v", k.Options)
	}
}
