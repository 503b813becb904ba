package cert

import (
	"crypto/x509"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	certutil "k8s.io/client-go/util/cert"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var (
	start  = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	ninety = Options{Hosts: []string{"daybreak-manager.daybreak-system.svc", "127.0.0.1"}, Validity: 90 * 24 * time.Hour, Overlap: 10 * time.Minute}
)

const day = 24 * time.Hour

func begin(t *testing.T, o Options) *state {
	t.Helper()
	s, err := newState(&o, start)
	gputest.Must(t, err)
	return s
}

func bundleOf(t *testing.T, s *state) []byte {
	t.Helper()
	bundle, err := certutil.EncodeCertificates(s.trusted()...)
	gputest.Must(t, err)
	return bundle
}

// verify checks that an API server with this bundle would accept what is served.
func verify(t *testing.T, bundle []byte, served *x509.Certificate, host string, now time.Time) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle is empty")
	}
	if _, err := served.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: now}); err != nil {
		t.Fatalf("at %s: %v", now, err)
	}
}

// TestLife turns the clock for three years in steps of a day. Whatever a late
// API server still trusts, within the overlap, it can always verify what is
// served, and nothing changes without need.
func TestLife(t *testing.T) {
	s := begin(t, ninety)
	bundle := bundleOf(t, s) // what the configuration has
	late := bundle           // what an API server with a delay still has
	lateSince := start       // since when the newer one is there
	changes, authorities := 0, map[string]bool{}
	for now := start; now.Before(start.Add(3 * 365 * day)); now = now.Add(day) {
		listed := func(c *x509.Certificate) bool {
			certs, err := certutil.ParseCertsPEM(bundle)
			return err == nil && slices.ContainsFunc(certs, c.Equal)
		}
		next, err := s.advance(&ninety, now, listed)
		gputest.Must(t, err)
		if next != s {
			changes++
		}
		s = next
		// The Secret is written, the replica serves, the configuration is
		// written a moment later.
		verify(t, bundle, s.serving.Leaf, "127.0.0.1", now)
		if now.Sub(lateSince) >= ninety.Overlap {
			late = bundle
		}
		verify(t, late, s.serving.Leaf, ninety.Hosts[0], now)
		if b := bundleOf(t, s); string(b) != string(bundle) {
			bundle, lateSince = b, now
		}
		if s.expired(now) {
			t.Fatalf("at %s: the authority has expired", now)
		}
		authorities[s.authority.Leaf.Subject.CommonName] = true
		if n := len(s.trusted()); n > 3 {
			t.Fatalf("at %s: %d authorities are trusted", now, n)
		}
	}
	// An authority signs for two thirds of 360 days, a certificate for two
	// thirds of 90.
	if len(authorities) < 4 || len(authorities) > 6 {
		t.Errorf("%d authorities in three years", len(authorities))
	}
	if changes < 15 || changes > 60 {
		t.Errorf("%d changes in three years", changes)
	}
}

func TestAdvance(t *testing.T) {
	unlisted := func(*x509.Certificate) bool { return false }
	listed := func(*x509.Certificate) bool { return true }

	s := begin(t, ninety)
	step := func(now time.Time, listed func(*x509.Certificate) bool) *state {
		t.Helper()
		next, err := s.advance(&ninety, now, listed)
		gputest.Must(t, err)
		return next
	}
	if step(start.Add(50*day), listed) != s {
		t.Error("something changed while nothing was due")
	}
	renewed := step(start.Add(61*day), unlisted)
	if renewed == s || renewed.serving.Leaf.Equal(s.serving.Leaf) || !renewed.authority.Leaf.Equal(s.authority.Leaf) || renewed.next != nil {
		t.Error("at two thirds the serving certificate was not renewed, or more than it")
	}

	// The authority's last third: another one waits.
	now := start.Add(241 * day)
	s = step(now, unlisted)
	if s.next == nil || !s.since.IsZero() || s.authority.Leaf.Equal(s.next.Leaf) {
		t.Fatal("no other authority waits")
	}
	before := s
	for range 100 { // it is not published: it never signs
		now = now.Add(time.Hour)
		s = step(now, unlisted)
	}
	if s.next == nil || !s.next.Leaf.Equal(before.next.Leaf) || !s.authority.Leaf.Equal(before.authority.Leaf) {
		t.Fatal("an authority that is not trusted was used, or made again")
	}
	s = step(now, listed)
	if !s.since.Equal(now) {
		t.Fatalf("since %s, want %s", s.since, now)
	}
	if s = step(now.Add(ninety.Overlap-time.Second), listed); s.next == nil {
		t.Fatal("it signed before the overlap was over")
	}
	old := s
	if s = step(now.Add(ninety.Overlap), listed); s.next != nil || !s.authority.Leaf.Equal(before.next.Leaf) || s.serving.Leaf.CheckSignatureFrom(s.authority.Leaf) != nil {
		t.Fatal("it did not sign after the overlap")
	}
	if len(s.earlier) != 1 || !s.earlier[0].Equal(before.authority.Leaf) {
		t.Error("the old authority is no longer trusted, while other replicas may still serve by it")
	}
	verify(t, bundleOf(t, s), old.serving.Leaf, "127.0.0.1", now)
	if s = step(old.authority.Leaf.NotAfter, listed); len(s.earlier) != 0 {
		t.Error("an authority is trusted beyond its end")
	}
}

// TestHosts: replicas that are called by different names agree on one
// certificate for all of them.
func TestHosts(t *testing.T) {
	s := begin(t, ninety)
	other := ninety
	other.Hosts = []string{"manager.example.com", "10.0.0.7"}
	never := func(*x509.Certificate) bool { return false }
	both, err := s.advance(&other, start, never)
	gputest.Must(t, err)
	for _, host := range slices.Concat(ninety.Hosts, other.Hosts) {
		verify(t, bundleOf(t, s), both.serving.Leaf, host, start)
	}
	for _, o := range []Options{ninety, other} {
		if again, err := both.advance(&o, start, never); err != nil || again != both {
			t.Errorf("signed again for %v (%v)", o.Hosts, err)
		}
	}
	long := ninety
	long.Hosts = []string{"daybreak-manager.a-namespace-with-a-name-that-is-really-much-longer-than-most.svc"}
	s = begin(t, long)
	verify(t, bundleOf(t, s), s.serving.Leaf, long.Hosts[0], start)
}

func TestRoundTrip(t *testing.T) {
	s := begin(t, ninety)
	full := *s
	next, err := newAuthority(&ninety, start)
	gputest.Must(t, err)
	full.next, full.since = next, start.Add(time.Minute+time.Nanosecond)
	full.earlier = []*x509.Certificate{begin(t, ninety).authority.Leaf}
	waiting := full
	waiting.since = time.Time{}
	for name, s := range map[string]*state{"fresh": s, "everything": &full, "not listed yet": &waiting} {
		t.Run(name, func(t *testing.T) {
			data, err := s.encode()
			gputest.Must(t, err)
			got, err := decode(data)
			gputest.Must(t, err)
			gputest.Equal(t, "state, written and read", s, got, cmp.AllowUnexported(state{}), cmpopts.EquateEmpty())
		})
	}
}

func TestDecodeGarbage(t *testing.T) {
	good := func(t *testing.T) map[string][]byte {
		s := begin(t, ninety)
		next, err := newAuthority(&ninety, start)
		gputest.Must(t, err)
		s.next, s.since = next, start
		data, err := s.encode()
		gputest.Must(t, err)
		return data
	}
	cases := map[string]func(data map[string][]byte){
		"nothing":                 func(d map[string][]byte) { clear(d) },
		"no authority":            func(d map[string][]byte) { delete(d, entryAuthority+suffixCert) },
		"no key of the authority": func(d map[string][]byte) { delete(d, entryAuthority+suffixKey) },
		"no serving certificate":  func(d map[string][]byte) { delete(d, entryServing+suffixCert) },
		"no key of the next":      func(d map[string][]byte) { delete(d, entryNext+suffixKey) },
		"text":                    func(d map[string][]byte) { d[entryServing+suffixCert] = []byte("garbage") },
		"an empty authority":      func(d map[string][]byte) { d[entryAuthority+suffixCert] = []byte(" \n") },
		"a cut certificate":       func(d map[string][]byte) { d[entryServing+suffixCert] = d[entryServing+suffixCert][:200] },
		"a key for a certificate": func(d map[string][]byte) { d[entryServing+suffixCert] = d[entryServing+suffixKey] },
		"a certificate for a key": func(d map[string][]byte) { d[entryServing+suffixKey] = d[entryServing+suffixCert] },
		"the other one's key":     func(d map[string][]byte) { d[entryServing+suffixKey] = d[entryAuthority+suffixKey] },
		"an authority that is none": func(d map[string][]byte) {
			d[entryAuthority+suffixCert], d[entryAuthority+suffixKey] = d[entryServing+suffixCert], d[entryServing+suffixKey]
		},
		"a next one that is none": func(d map[string][]byte) {
			d[entryNext+suffixCert], d[entryNext+suffixKey] = d[entryServing+suffixCert], d[entryServing+suffixKey]
		},
		"an earlier one that is none": func(d map[string][]byte) {
			d[entryAuthority+suffixCert] = append(d[entryAuthority+suffixCert], d[entryServing+suffixCert]...)
		},
		"no time": func(d map[string][]byte) { d[entrySince] = []byte("yesterday") },
		"endless authorities": func(d map[string][]byte) {
			one := d[entryAuthority+suffixCert]
			for range maxCerts {
				d[entryAuthority+suffixCert] = append(d[entryAuthority+suffixCert], one...)
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			data := good(t)
			_, err := decode(data)
			gputest.Must(t, err)
			cases[name](data)
			if _, err := decode(data); err == nil || err.Error() == "" {
				t.Error("read without complaint")
			}
		})
	}
}
