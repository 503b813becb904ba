package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// authoritySpan is how many times longer an authority lives than what it signs.
const authoritySpan = 4

// skew is how far a certificate reaches back, for API servers whose clock is
// behind.
const skew = time.Hour

// state is what the Secret holds. It is never changed once it is shared:
// advance returns another.
type state struct {
	authority pair
	// next is an authority that waits to be known, from since on named in the
	// configuration; zero is not yet.
	next  *pair
	since time.Time
	// earlier are authorities that signed before and have not ended.
	earlier []*x509.Certificate
	serving pair
}

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// terms is how long things last and for whom they are.
type terms struct {
	hosts             []string
	validity, overlap time.Duration
}

// newState begins from nothing.
func newState(t terms, now time.Time) (*state, error) {
	authority, err := newAuthority(t, now)
	if err != nil {
		return nil, err
	}
	s := &state{authority: *authority}
	s.serving, err = s.sign(t, now)
	return s, err
}

func newAuthority(t terms, now time.Time) (*pair, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return issue(&x509.Certificate{
		SerialNumber: serial,
		// Two authorities must differ in name: a chain is looked up by it.
		Subject:   pkix.Name{CommonName: fmt.Sprintf("daybreak-manager-%x", serial)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(authoritySpan * t.validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, key, nil)
}

// sign makes a serving certificate.
func (s *state) sign(t terms, now time.Time) (pair, error) {
	serial, err := newSerial()
	if err != nil {
		return pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: t.hosts[0]},
		NotBefore: now.Add(-skew), NotAfter: now.Add(t.validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(t.hosts[0]) > 64 {
		template.Subject.CommonName = "daybreak-manager" // a longer one is no valid name
	}
	for _, host := range t.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	made, err := issue(template, key, &s.authority)
	if err != nil {
		return pair{}, err
	}
	return *made, nil
}

// issue makes a certificate, signed by the authority or else by itself.
func issue(template *x509.Certificate, key *ecdsa.PrivateKey, authority *pair) (*pair, error) {
	if authority == nil {
		authority = &pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.cert, key.Public(), authority.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &pair{cert: cert, key: key}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

// usable says why nothing can be made of the state, if so: an authority that has
// ended signs nothing that anyone believes.
func (s *state) usable(now time.Time) error {
	if !now.Before(s.authority.cert.NotAfter) {
		return errors.New("the authority has ended")
	}
	return nil
}

// advance returns the state after the next step that is due, or the same when
// there is none. The API server trusts what named says.
func (s *state) advance(t terms, now time.Time, named func(*x509.Certificate) bool) (*state, error) {
	out := *s
	out.earlier = slices.DeleteFunc(slices.Clone(s.earlier), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
	changed := len(out.earlier) != len(s.earlier)
	var err error
	switch {
	case s.next == nil && s.authority.cert.NotAfter.Sub(now) < authoritySpan*t.validity/3:
		out.next, err = newAuthority(t, now)
		out.since, changed = time.Time{}, true
	case s.next != nil && s.since.IsZero() && named(s.next.cert):
		out.since, changed = now, true
	case s.next != nil && !s.since.IsZero() && now.Sub(s.since) >= t.overlap:
		out.earlier = append(out.earlier, s.authority.cert)
		out.authority, out.next, out.since = *s.next, nil, time.Time{}
		out.serving, err = out.sign(t, now)
		changed = true
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !out.believed(now):
		out.serving, err = out.sign(t, now)
		changed = true
	case !out.serves(t.hosts):
		// Others may be called by what it names now: keep that too, or two
		// replicas would take turns.
		t.hosts = append(slices.Clone(t.hosts), hostsOf(s.serving.cert)...)
		slices.Sort(t.hosts)
		t.hosts = slices.Compact(t.hosts)
		fallthrough
	case out.serving.cert.NotAfter.Sub(now) < t.validity/3:
		out.serving, err = out.sign(t, now)
		changed = true
	}
	if err != nil || !changed {
		return s, err
	}
	return &out, nil
}

// believed tells whether whoever trusts our authorities believes the serving
// certificate.
func (s *state) believed(now time.Time) bool {
	pool := x509.NewCertPool()
	for _, c := range append([]*x509.Certificate{s.authority.cert}, s.earlier...) {
		pool.AddCert(c)
	}
	_, err := s.serving.cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
	return err == nil
}

// serves tells whether the serving certificate names all hosts.
func (s *state) serves(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return s.serving.cert.VerifyHostname(host) != nil })
}

// hostsOf returns the names and addresses of a certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// trusted returns the authorities that the API server is to trust.
func (s *state) trusted() []*x509.Certificate {
	list := []*x509.Certificate{s.authority.cert}
	if s.next != nil {
		list = append(list, s.next.cert)
	}
	return append(list, s.earlier...)
}

// bundle returns the same for the configuration.
func (s *state) bundle() []byte { return encodeCerts(s.trusted()) }

func encodeCerts(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // to memory: can't fail
	}
	return out.Bytes()
}

// tls returns the serving certificate as a server needs it.
func (s *state) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{s.serving.cert.Raw}, PrivateKey: s.serving.key, Leaf: s.serving.cert}
}
