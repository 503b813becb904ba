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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// How long things last unless they are told otherwise.
const (
	DefaultValidity = 90 * 24 * time.Hour
	DefaultOverlap  = 10 * time.Minute
)

// Options says which certificates to keep.
type Options struct {
	Client kubernetes.Interface
	// Namespace and Secret are where they are kept.
	Namespace, Secret string
	// Configuration is the name of the MutatingWebhookConfiguration that is to
	// trust them.
	Configuration string
	// Hosts are the names and addresses that the API server calls; at least one.
	Hosts []string
	// Validity is how long a serving certificate lasts, an authority four times
	// as long; the last third is for renewing. Overlap is how long a new
	// authority is known before it signs. Zero means the defaults.
	Validity, Overlap time.Duration
	// Clock is for what waits; nil is the real one.
	Clock clock.WithTicker
}

// Keeper keeps the certificates of one replica. Its methods may be called at the
// same time.
type Keeper struct {
	options Options
	terms   terms

	mu      sync.RWMutex
	state   *state // what is served and remembered; nil until the first step
	serving *tls.Certificate
	problem error // why the last step did not come to its end
}

// New returns a keeper that keeps nothing until it is run.
func New(o Options) (*Keeper, error) {
	o.Validity, o.Overlap = cmp.Or(o.Validity, DefaultValidity), cmp.Or(o.Overlap, DefaultOverlap)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	switch {
	case len(o.Hosts) == 0 || slices.Contains(o.Hosts, ""):
		return nil, errors.New("certificates: no name that the API server calls: name one")
	case o.Validity < 0 || o.Overlap < 0 || o.Overlap > o.Validity:
		return nil, fmt.Errorf("certificates that last %s with an overlap of %s: the overlap goes from 0 to the validity", o.Validity, o.Overlap)
	}
	return &Keeper{options: o, terms: terms{hosts: o.Hosts, validity: o.Validity, overlap: o.Overlap}, problem: errors.New("not begun yet")}, nil
}

// NeedLeaderElection tells controller-runtime that every replica keeps.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is for a TLS server: a certificate that is renewed is used from
// the next connection on.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.serving == nil {
		return nil, fmt.Errorf("no certificate yet: %w", k.problem)
	}
	return k.serving, nil
}

// Ready says why the API server can't call this replica, if it can't.
func (k *Keeper) Ready() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.serving == nil {
		return fmt.Errorf("no certificate yet: %w", k.problem)
	}
	if !k.options.Clock.Now().Before(k.serving.Leaf.NotAfter) {
		return fmt.Errorf("the certificate has ended: %w", k.problem)
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
	interval := min(max(k.options.Validity/60, 100*time.Millisecond), time.Minute)
	for {
		if err := k.Step(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Certificates could not be kept; trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-k.options.Clock.After(interval):
		}
	}
}

// watch returns a channel that tells when the Secret or the configuration has
// changed, by us or by others: a caBundle that was overwritten is put back at
// once.
func (k *Keeper) watch(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	tell := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }, DeleteFunc: tell}
	only := func(name string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name })
	}
	secrets := informers.NewSharedInformerFactoryWithOptions(k.options.Client, 0, informers.WithNamespace(k.options.Namespace), only(k.options.Secret))
	configurations := informers.NewSharedInformerFactoryWithOptions(k.options.Client, 0, only(k.options.Configuration))
	for _, informer := range []cache.SharedIndexInformer{
		secrets.Core().V1().Secrets().Informer(), configurations.Admissionregistration().V1().MutatingWebhookConfigurations().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch the certificates: %w", err)
		}
	}
	secrets.Start(ctx.Done())
	configurations.Start(ctx.Done())
	return changed, nil
}

// tries is how often a step begins again because another replica was faster.
const tries = 8

// Step does what is due now: it is what Start does over and over.
func (k *Keeper) Step(ctx context.Context) error {
	var err error
	for range tries {
		if err = k.step(ctx); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problem = err
	return err
}

// step is one try. The configuration is read before the Secret and written
// under the version that was read: so no replica puts an older bundle in place
// of a newer one.
func (k *Keeper) step(ctx context.Context) error {
	configurations := k.options.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := configurations.Get(ctx, k.options.Configuration, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the webhook configuration: %w", err)
	}
	current, err := k.keepSecret(ctx, configuration)
	if err != nil {
		return err
	}
	if bundle := current.bundle(); setBundle(configuration, bundle) {
		if _, err := configurations.Update(ctx, configuration, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("tell the API server whom to trust: %w", err)
		}
		klog.FromContext(ctx).Info("Authorities were published", "configuration", configuration.Name, "authorities", len(current.trusted()))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving == nil || !k.serving.Leaf.Equal(current.serving.cert) {
		k.serving = current.tls()
		klog.FromContext(ctx).Info("Serving certificate is in use", "until", current.serving.cert.NotAfter, "hosts", k.options.Hosts)
	}
	k.state = current
	return nil
}

// keepSecret returns the state after what was due, as it stands in the Secret.
func (k *Keeper) keepSecret(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration) (*state, error) {
	now := k.options.Clock.Now()
	secrets := k.options.Client.CoreV1().Secrets(k.options.Namespace)
	secret, err := secrets.Get(ctx, k.options.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = k.createSecret(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	stored, err := decode(secret.Data)
	if err == nil {
		err = stored.usable(now)
	}
	current := stored
	if err != nil {
		if current, err = k.recover(ctx, now, err); err != nil {
			return nil, err
		}
	}
	next, err := current.advance(k.terms, now, namedIn(configuration))
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

// createSecret creates the Secret, empty. Whoever installs the manager does so
// already: a manager need not have the right, which would be the right to make a
// token of any account.
func (k *Keeper) createSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: k.options.Secret}}
	secret, err := k.options.Client.CoreV1().Secrets(k.options.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("there is no Secret %[1]s/%[2]s: create it empty, as the chart does: kubectl -n %[1]s create secret generic %[2]s",
			k.options.Namespace, k.options.Secret)
	}
	return secret, err
}

// recover returns what to begin with where the Secret is of no use: what this
// replica remembers, which the API server trusts already, else something new.
func (k *Keeper) recover(ctx context.Context, now time.Time, reason error) (*state, error) {
	k.mu.RLock()
	remembered := k.state
	k.mu.RUnlock()
	logger := klog.FromContext(ctx)
	if remembered != nil && remembered.usable(now) == nil {
		logger.Info("Certificates are written again from memory", "reason", reason.Error())
		return remembered, nil
	}
	logger.Info("Certificates are made anew", "reason", reason.Error())
	return newState(k.terms, now)
}

// namedIn returns whether every webhook of the configuration trusts an
// authority.
func namedIn(configuration *admissionregistrationv1.MutatingWebhookConfiguration) func(*x509.Certificate) bool {
	return func(cert *x509.Certificate) bool {
		for i := range configuration.Webhooks {
			certs, err := parseBundle(configuration.Webhooks[i].ClientConfig.CABundle)
			if err != nil || !slices.ContainsFunc(certs, cert.Equal) {
				return false
			}
		}
		return len(configuration.Webhooks) > 0
	}
}

// setBundle makes every webhook trust the authorities and reports whether that
// is a change.
func setBundle(configuration *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) bool {
	changed := false
	for i := range configuration.Webhooks {
		if c := &configuration.Webhooks[i].ClientConfig; !bytes.Equal(c.CABundle, bundle) {
			c.CABundle, changed = bundle, true
		}
	}
	return changed
}
