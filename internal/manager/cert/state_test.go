package cert

import (
	"crypto/x509"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start  = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	ninety = terms{hosts: []string{"daybreak-manager.daybreak-system.svc", "127.0.0.1"}, validity: 90 * 24 * time.Hour, overlap: 10 * time.Minute}
)

const day = 24 * time.Hour

func begin(t *testing.T, tm terms) *state {
	t.Helper()
	s, err := newState(tm, start)
	if err != nil {
		t.Fatal(err)
	}
	return s
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
	bundle := s.bundle() // what the configuration says
	late := bundle       // what an API server with a delay still thinks
	lateSince := start   // since when the newer one is there
	changes, authorities := 0, map[string]bool{}
	for now := start; now.Before(start.Add(3 * 365 * day)); now = now.Add(day) {
		named := func(c *x509.Certificate) bool {
			certs, err := parseBundle(bundle)
			return err == nil && slices.ContainsFunc(certs, c.Equal)
		}
		next, err := s.advance(ninety, now, named)
		if err != nil {
			t.Fatal(err)
		}
		if next != s {
			changes++
		}
		s = next
		// The Secret is written, the replica serves, the configuration is
		// written a moment later.
		verify(t, bundle, s.serving.cert, "127.0.0.1", now)
		if now.Sub(lateSince) >= ninety.overlap {
			late = bundle
		}
		verify(t, late, s.serving.cert, ninety.hosts[0], now)
		if b := s.bundle(); string(b) != string(bundle) {
			bundle, lateSince = b, now
		}
		if err := s.usable(now); err != nil {
			t.Fatalf("at %s: %v", now, err)
		}
		authorities[s.authority.cert.Subject.CommonName] = true
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
	nobody := func(*x509.Certificate) bool { return false }
	everybody := func(*x509.Certificate) bool { return true }

	s := begin(t, ninety)
	step := func(now time.Time, named func(*x509.Certificate) bool) *state {
		t.Helper()
		next, err := s.advance(ninety, now, named)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	if step(start.Add(50*day), everybody) != s {
		t.Error("something changed while nothing was due")
	}
	renewed := step(start.Add(61*day), nobody)
	if renewed == s || renewed.serving.cert.Equal(s.serving.cert) || !renewed.authority.cert.Equal(s.authority.cert) || renewed.next != nil {
		t.Error("at two thirds the serving certificate was not renewed, or more than it")
	}

	// The authority's last third: another one waits.
	now := start.Add(241 * day)
	s = step(now, nobody)
	if s.next == nil || !s.since.IsZero() || s.authority.cert.Equal(s.next.cert) {
		t.Fatal("no other authority waits")
	}
	before := s
	for range 100 { // nobody has heard of it: it never signs
		now = now.Add(time.Hour)
		s = step(now, nobody)
	}
	if s.next == nil || !s.next.cert.Equal(before.next.cert) || !s.authority.cert.Equal(before.authority.cert) {
		t.Fatal("an authority that nobody trusts was used, or made again")
	}
	s = step(now, everybody)
	if !s.since.Equal(now) {
		t.Fatalf("since %s, want %s", s.since, now)
	}
	if s = step(now.Add(ninety.overlap-time.Second), everybody); s.next == nil {
		t.Fatal("it signed before the overlap was over")
	}
	old := s
	if s = step(now.Add(ninety.overlap), everybody); s.next != nil || !s.authority.cert.Equal(before.next.cert) || s.serving.cert.CheckSignatureFrom(s.authority.cert) != nil {
		t.Fatal("it did not sign after the overlap")
	}
	if len(s.earlier) != 1 || !s.earlier[0].Equal(before.authority.cert) {
		t.Error("the old authority is no longer trusted, while other replicas may still serve by it")
	}
	verify(t, s.bundle(), old.serving.cert, "127.0.0.1", now)
	if s = step(old.authority.cert.NotAfter, everybody); len(s.earlier) != 0 {
		t.Error("an authority is trusted beyond its end")
	}
}

// TestHosts: replicas that are called by different names agree on one
// certificate for all of them.
func TestHosts(t *testing.T) {
	s := begin(t, ninety)
	other := ninety
	other.hosts = []string{"manager.example.com", "10.0.0.7"}
	never := func(*x509.Certificate) bool { return false }
	both, err := s.advance(other, start, never)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range slices.Concat(ninety.hosts, other.hosts) {
		verify(t, s.bundle(), both.serving.cert, host, start)
	}
	for _, tm := range []terms{ninety, other} {
		if again, err := both.advance(tm, start, never); err != nil || again != both {
			t.Errorf("signed again for %v (%v)", tm.hosts, err)
		}
	}
	long := ninety
	long.hosts = []string{"daybreak-manager.a-namespace-with-a-name-that-is-really-much-longer-than-most.svc"}
	s = begin(t, long)
	verify(t, s.bundle(), s.serving.cert, long.hosts[0], start)
}

func TestRoundTrip(t *testing.T) {
	s := begin(t, ninety)
	full := *s
	next, err := newAuthority(ninety, start)
	if err != nil {
		t.Fatal(err)
	}
	full.next, full.since = next, start.Add(time.Minute+time.Nanosecond)
	full.earlier = []*x509.Certificate{begin(t, ninety).authority.cert}
	waiting := full
	waiting.since = time.Time{}
	for name, s := range map[string]*state{"fresh": s, "everything": &full, "not named yet": &waiting} {
		t.Run(name, func(t *testing.T) {
			data, err := s.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, got, cmp.AllowUnexported(state{}, pair{})); diff != "" {
				t.Errorf("(-written +read):\n%s", diff)
			}
		})
	}
}

func TestDecodeGarbage(t *testing.T) {
	good := func(t *testing.T) map[string][]byte {
		s := begin(t, ninety)
		next, err := newAuthority(ninety, start)
		if err != nil {
			t.Fatal(err)
		}
		s.next, s.since = next, start
		data, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	cases := map[string]func(data map[string][]byte){
		"nothing":                 func(d map[string][]byte) { clear(d) },
		"no authority":            func(d map[string][]byte) { delete(d, entryAuthority) },
		"no key of the authority": func(d map[string][]byte) { delete(d, entryAuthorityKey) },
		"no serving certificate":  func(d map[string][]byte) { delete(d, entryServing) },
		"no key of the next":      func(d map[string][]byte) { delete(d, entryNextKey) },
		"text":                    func(d map[string][]byte) { d[entryServing] = []byte("garbage") },
		"an empty authority":      func(d map[string][]byte) { d[entryAuthority] = []byte(" \n") },
		"a cut certificate":       func(d map[string][]byte) { d[entryServing] = d[entryServing][:200] },
		"a key for a certificate": func(d map[string][]byte) { d[entryServing] = d[entryServingKey] },
		"a certificate for a key": func(d map[string][]byte) { d[entryServingKey] = d[entryServing] },
		"the other one's key":     func(d map[string][]byte) { d[entryServingKey] = d[entryAuthorityKey] },
		"an authority that is none": func(d map[string][]byte) {
			d[entryAuthority], d[entryAuthorityKey] = d[entryServing], d[entryServingKey]
		},
		"a next one that is none":     func(d map[string][]byte) { d[entryNext], d[entryNextKey] = d[entryServing], d[entryServingKey] },
		"an earlier one that is none": func(d map[string][]byte) { d[entryAuthority] = append(d[entryAuthority], d[entryServing]...) },
		"no time":                     func(d map[string][]byte) { d[entryNextSince] = []byte("yesterday") },
		"endless authorities": func(d map[string][]byte) {
			one := d[entryAuthority]
			for range maxCerts {
				d[entryAuthority] = append(d[entryAuthority], one...)
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			data := good(t)
			if _, err := decode(data); err != nil {
				t.Fatal(err)
			}
			cases[name](data)
			if _, err := decode(data); err == nil || err.Error() == "" {
				t.Error("read without complaint")
			}
		})
	}
}
