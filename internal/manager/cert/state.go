package cert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"
)

const (
	// authoritySpan is how many times longer an authority lasts than what it signs.
	authoritySpan = 4
	// skew is how far a certificate reaches back, for API servers whose clock is
	// behind.
	skew = time.Hour
)

// state is what the Secret holds. It is never changed once it is shared:
// advance returns another.
type state struct {
	authority *tls.Certificate
	// next is an authority that waits. The configuration lists it since the given
	// time; zero is not yet.
	next  *tls.Certificate
	since time.Time
	// earlier are authorities that signed before and have not expired.
	earlier []*x509.Certificate
	serving *tls.Certificate
}

func newState(o *Options, now time.Time) (*state, error) {
	authority, err := newAuthority(o, now)
	if err != nil {
		return nil, err
	}
	s := &state{authority: authority}
	err = s.sign(o.Hosts, o.Validity, now)
	return s, err
}

func newAuthority(o *Options, now time.Time) (*tls.Certificate, error) {
	return issue(&x509.Certificate{
		// Two authorities must differ in name: a chain is looked up by it.
		Subject:   pkix.Name{CommonName: "daybreak-manager-" + rand.Text()},
		NotBefore: now.Add(-skew), NotAfter: now.Add(authoritySpan * o.Validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
}

// sign puts another serving certificate in place.
func (s *state) sign(hosts []string, validity time.Duration, now time.Time) (err error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "daybreak-manager"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	s.serving, err = issue(template, s.authority)
	return err
}

// issue makes a certificate with a new key, signed by the authority or else by
// itself.
func issue(template *x509.Certificate, authority *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, signer := template, crypto.PrivateKey(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// expired reports whether nothing can be signed any more.
func (s *state) expired(now time.Time) bool { return !now.Before(s.authority.Leaf.NotAfter) }

// advance returns the state after the next step that is due, or the same when
// there is none. The API server trusts the authorities that listed reports.
func (s *state) advance(o *Options, now time.Time, listed func(*x509.Certificate) bool) (*state, error) {
	out := *s
	out.earlier = slices.DeleteFunc(slices.Clone(s.earlier), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
	changed := true
	var err error
	switch {
	case s.next == nil && s.authority.Leaf.NotAfter.Sub(now) < authoritySpan*o.Validity/3:
		out.next, err = newAuthority(o, now)
	case s.next != nil && s.since.IsZero() && listed(s.next.Leaf):
		out.since = now
	case s.next != nil && !s.since.IsZero() && now.Sub(s.since) >= o.Overlap:
		out.earlier = append(out.earlier, s.authority.Leaf)
		out.authority, out.next, out.since = s.next, nil, time.Time{}
		err = out.sign(o.Hosts, o.Validity, now)
	default:
		changed = len(out.earlier) != len(s.earlier)
	}
	if err != nil {
		return nil, err
	}
	if hosts, due := out.renewal(o, now); due {
		err, changed = out.sign(hosts, o.Validity, now), true
	}
	if err != nil || !changed {
		return s, err
	}
	return &out, nil
}

// renewal reports whether another serving certificate is due, and for which
// hosts.
func (s *state) renewal(o *Options, now time.Time) (hosts []string, due bool) {
	pool := x509.NewCertPool()
	for _, c := range s.signers() {
		pool.AddCert(c)
	}
	leaf := s.serving.Leaf
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now}); err != nil {
		return o.Hosts, true
	}
	if slices.ContainsFunc(o.Hosts, func(host string) bool { return leaf.VerifyHostname(host) != nil }) {
		// The API server may call other replicas by the names it has now: without
		// them two replicas would take turns.
		hosts = slices.Concat(o.Hosts, leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			hosts = append(hosts, ip.String())
		}
		slices.Sort(hosts)
		return slices.Compact(hosts), true
	}
	return o.Hosts, leaf.NotAfter.Sub(now) < o.Validity/3
}

// signers returns the authority and the earlier ones.
func (s *state) signers() []*x509.Certificate {
	return append([]*x509.Certificate{s.authority.Leaf}, s.earlier...)
}

// trusted returns the authorities that the API server is to trust. All replicas
// must write them in the same order.
func (s *state) trusted() []*x509.Certificate {
	if s.next == nil {
		return s.signers()
	}
	return slices.Insert(s.signers(), 1, s.next.Leaf)
}
