package cert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The durations of [Options] unless they are set.
const (
	DefaultValidity = 90 * 24 * time.Hour
	DefaultOverlap  = 10 * time.Minute
)

// Options configures the certificates.
type Options struct {
	Client kubernetes.Interface
	// Namespace and Secret are where they are kept.
	Namespace, Secret string
	// Configuration is the name of the MutatingWebhookConfiguration that is to
	// trust them, and with Validating that of a ValidatingWebhookConfiguration too.
	Configuration string
	Validating    bool
	// Hosts are the names and addresses that the API server calls; at least one.
	Hosts []string
	// Validity is how long a serving certificate lasts, an authority four times
	// as long; both are renewed in the last third. Overlap is how long a new
	// authority is published before it signs. Zero means the defaults.
	Validity, Overlap time.Duration
	Clock             clock.WithTicker
}

// Keeper keeps the certificates of one replica. Its methods may be called at the
// same time.
type Keeper struct {
	Options

	mu      sync.RWMutex
	state   *state // what is served; nil until the first step
	problem error  // why the last step failed
}

// New returns a keeper that keeps nothing until it is run.
func New(o Options) (*Keeper, error) {
	o.Validity, o.Overlap = cmp.Or(o.Validity, DefaultValidity), cmp.Or(o.Overlap, DefaultOverlap)
	switch {
	case len(o.Hosts) == 0 || slices.Contains(o.Hosts, ""):
		return nil, errors.New("certificates: no name that the API server calls: name one")
	case o.Validity < 0 || o.Overlap < 0 || o.Overlap > o.Validity:
		return nil, fmt.Errorf("certificates that last %s with an overlap of %s: the overlap goes from 0 to the validity", o.Validity, o.Overlap)
	}
	return &Keeper{Options: o, problem: errors.New("not started yet")}, nil
}

// NeedLeaderElection reports that every replica keeps certificates.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is for a TLS server: a renewed certificate is used from the next
// connection on.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.state == nil {
		return nil, fmt.Errorf("no certificate yet: %w", k.problem)
	}
	return k.state.serving, nil
}

// Ready returns why the API server can't call this replica, if it can't.
func (k *Keeper) Ready() error {
	serving, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if until := serving.Leaf.NotAfter; !k.Clock.Now().Before(until) {
		return fmt.Errorf("the certificate expired at %s: %w", until, k.problem)
	}
	return nil
}

// Start keeps the certificates until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	changed, err := k.watch(ctx)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx).WithName("certificates")
	interval := min(max(k.Validity/60, 100*time.Millisecond), time.Minute)
	for {
		if err := k.Step(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Certificates could not be kept, trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-k.Clock.After(interval):
		}
	}
}

// watch returns a channel that receives when the Secret or the configuration has
// changed: a caBundle that was overwritten is restored at once.
func (k *Keeper) watch(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, obj any) { notify(obj) }, DeleteFunc: notify}
	only := func(name string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
	}
	informers := []cache.SharedIndexInformer{
		coreinformers.NewFilteredSecretInformer(k.Client, k.Namespace, 0, nil, only(k.Secret)),
		admissioninformers.NewFilteredMutatingWebhookConfigurationInformer(k.Client, 0, nil, only(k.Configuration)),
	}
	if k.Validating {
		informers = append(informers, admissioninformers.NewFilteredValidatingWebhookConfigurationInformer(k.Client, 0, nil, only(k.Configuration)))
	}
	for _, informer := range informers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch the certificates: %w", err)
		}
		go informer.RunWithContext(ctx)
	}
	return changed, nil
}

// Step does what is due now, and again where another replica was faster.
func (k *Keeper) Step(ctx context.Context) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return k.step(ctx) })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problem = err
	return err
}

// step is one try. The configurations are read before the Secret and written
// under the versions that were read: so no replica puts an older bundle in place
// of a newer one.
func (k *Keeper) step(ctx context.Context) error {
	configurations, err := k.configurations(ctx)
	if err != nil {
		return fmt.Errorf("read the webhook configuration: %w", err)
	}
	current, err := k.keepSecret(ctx, configurations)
	if err != nil {
		return err
	}
	bundle, err := certutil.EncodeCertificates(current.trusted()...)
	if err != nil {
		return err
	}
	for _, c := range configurations {
		if !c.setBundle(bundle) {
			continue
		}
		if err := c.update(); err != nil {
			return fmt.Errorf("publish the authorities: %w", err)
		}
		klog.FromContext(ctx).Info("Authorities were published", "configuration", k.Configuration, "webhooks", len(c.webhooks), "authorities", len(current.trusted()))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == nil || !k.state.serving.Leaf.Equal(current.serving.Leaf) {
		klog.FromContext(ctx).Info("Serving certificate is in use", "until", current.serving.Leaf.NotAfter, "hosts", k.Hosts)
	}
	k.state = current
	return nil
}

// keepSecret returns the state after what was due, as it stands in the Secret.
func (k *Keeper) keepSecret(ctx context.Context, configurations []webhookConfiguration) (*state, error) {
	now := k.Clock.Now()
	secrets := k.Client.CoreV1().Secrets(k.Namespace)
	secret, err := secrets.Get(ctx, k.Secret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Secret %[1]s/%[2]s: run helm upgrade, or create it empty: kubectl -n %[1]s create secret generic %[2]s", k.Namespace, k.Secret)
	case err != nil:
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	stored, err := decode(secret.Data)
	if err == nil && stored.expired(now) {
		err = errors.New("the authority has expired")
	}
	current := stored
	if err != nil {
		if current, err = k.recover(ctx, now, err); err != nil {
			return nil, err
		}
	}
	next, err := current.advance(&k.Options, now, func(authority *x509.Certificate) bool {
		return !slices.ContainsFunc(configurations, func(c webhookConfiguration) bool { return !c.lists(authority) })
	})
	if err != nil || next == stored {
		return next, err
	}
	if secret.Data, err = next.encode(); err != nil {
		return nil, err
	}
	if _, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("write the certificates: %w", err)
	}
	return next, nil
}

// recover returns what to start from where the Secret is of no use: what this
// replica serves, which the API server trusts already, else something new.
func (k *Keeper) recover(ctx context.Context, now time.Time, reason error) (*state, error) {
	k.mu.RLock()
	served := k.state
	k.mu.RUnlock()
	logger := klog.FromContext(ctx)
	if served != nil && !served.expired(now) {
		logger.Info("Certificates are written again from memory", "reason", reason.Error())
		return served, nil
	}
	logger.Info("Certificates are created", "reason", reason.Error())
	return newState(&k.Options, now)
}

// webhookConfiguration is a webhook configuration of either kind, as it was read.
type webhookConfiguration struct {
	webhooks []*admissionregistrationv1.WebhookClientConfig
	// update writes it under the version that was read.
	update func() error
}

// configurations reads those that are to trust the certificates.
func (k *Keeper) configurations(ctx context.Context) ([]webhookConfiguration, error) {
	mutating := k.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	m, err := mutating.Get(ctx, k.Configuration, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	first := webhookConfiguration{update: func() error {
		_, err := mutating.Update(ctx, m, metav1.UpdateOptions{})
		return err
	}}
	for i := range m.Webhooks {
		first.webhooks = append(first.webhooks, &m.Webhooks[i].ClientConfig)
	}
	if !k.Validating {
		return []webhookConfiguration{first}, nil
	}
	validating := k.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	v, err := validating.Get(ctx, k.Configuration, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	second := webhookConfiguration{update: func() error {
		_, err := validating.Update(ctx, v, metav1.UpdateOptions{})
		return err
	}}
	for i := range v.Webhooks {
		second.webhooks = append(second.webhooks, &v.Webhooks[i].ClientConfig)
	}
	return []webhookConfiguration{first, second}, nil
}

// lists reports whether every webhook of the configuration trusts the authority.
func (c webhookConfiguration) lists(authority *x509.Certificate) bool {
	for _, w := range c.webhooks {
		certs, err := certutil.ParseCertsPEM(w.CABundle)
		if err != nil || !slices.ContainsFunc(certs, authority.Equal) {
			return false
		}
	}
	return len(c.webhooks) > 0
}

// setBundle makes every webhook trust the authorities and reports whether that
// is a change.
func (c webhookConfiguration) setBundle(bundle []byte) bool {
	changed := false
	for _, w := range c.webhooks {
		if !bytes.Equal(w.CABundle, bundle) {
			w.CABundle, changed = bundle, true
		}
	}
	return changed
}
