package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// The entries of the Secret. Those with an authority hold its certificate; the
// first of ca.crt is the one that ca.key belongs to, and those after it signed
// before.
const (
	entryAuthority    = "ca.crt"
	entryAuthorityKey = "ca.key"
	entryServing      = "tls.crt"
	entryServingKey   = "tls.key"
	entryNext         = "next-ca.crt"
	entryNextKey      = "next-ca.key"
	entryNextSince    = "next-ca.since"
)

// encode writes the state as entries of a Secret.
func (s *state) encode() (map[string][]byte, error) {
	data := map[string][]byte{
		entryAuthority: encodeCerts(append([]*x509.Certificate{s.authority.cert}, s.earlier...)),
		entryServing:   encodeCerts([]*x509.Certificate{s.serving.cert}),
	}
	keys := map[string]*ecdsa.PrivateKey{entryAuthorityKey: s.authority.key, entryServingKey: s.serving.key}
	if s.next != nil {
		data[entryNext] = encodeCerts([]*x509.Certificate{s.next.cert})
		keys[entryNextKey] = s.next.key
		if !s.since.IsZero() {
			data[entryNextSince] = []byte(s.since.UTC().Format(time.RFC3339Nano))
		}
	}
	for entry, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", entry, err)
		}
		data[entry] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return data, nil
}

// decode reads a state. It is strict: whatever was not written by encode is an
// error, and the caller begins again.
func decode(data map[string][]byte) (*state, error) {
	s := &state{}
	authorities, err := decodeCerts(data, entryAuthority)
	if err != nil {
		return nil, err
	}
	if len(authorities) > 1 {
		s.earlier = authorities[1:]
	}
	if s.authority, err = decodePair(authorities[0], data, entryAuthorityKey); err != nil {
		return nil, err
	}
	serving, err := decodeCerts(data, entryServing)
	if err != nil {
		return nil, err
	}
	if s.serving, err = decodePair(serving[0], data, entryServingKey); err != nil {
		return nil, err
	}
	for _, c := range authorities {
		if !c.IsCA {
			return nil, fmt.Errorf("%s: a certificate that signs nothing", entryAuthority)
		}
	}
	if _, ok := data[entryNext]; ok {
		err = s.decodeNext(data)
	}
	return s, err
}

func (s *state) decodeNext(data map[string][]byte) error {
	certs, err := decodeCerts(data, entryNext)
	if err != nil {
		return err
	}
	next, err := decodePair(certs[0], data, entryNextKey)
	if err != nil {
		return err
	}
	if !next.cert.IsCA {
		return fmt.Errorf("%s: a certificate that signs nothing", entryNext)
	}
	s.next = &next
	if text := data[entryNextSince]; len(text) > 0 {
		if s.since, err = time.Parse(time.RFC3339Nano, string(text)); err != nil {
			return fmt.Errorf("%s: %w", entryNextSince, err)
		}
	}
	return nil
}

// maxCerts bounds what is read of one entry: there are never more than a few
// authorities at a time.
const maxCerts = 16

func decodeCerts(data map[string][]byte, entry string) ([]*x509.Certificate, error) {
	certs, err := parseBundle(data[entry])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entry, err)
	}
	return certs, nil
}

// parseBundle reads one or more certificates.
func parseBundle(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := text; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("no certificate")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if certs = append(certs, cert); len(certs) > maxCerts {
			return nil, fmt.Errorf("more than %d certificates", maxCerts)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate")
	}
	return certs, nil
}

// decodePair reads the key of a certificate and checks that it is its key.
func decodePair(cert *x509.Certificate, data map[string][]byte, entry string) (pair, error) {
	block, _ := pem.Decode(data[entry])
	if block == nil {
		return pair{}, fmt.Errorf("%s: no key", entry)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", entry, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("%s: a key of another kind", entry)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return pair{}, fmt.Errorf("%s: the key of another certificate", entry)
	}
	return pair{cert: cert, key: key}, nil
}
