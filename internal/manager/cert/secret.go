package cert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The entries of the Secret: a certificate and its key for each name. Of the
// authorities in ca.crt the first has the key; the others signed before.
const (
	entryAuthority = "ca"
	entryServing   = "tls"
	entryNext      = "next-ca"
	entrySince     = "next-ca.since"

	suffixCert = ".crt"
	suffixKey  = ".key"
)

// maxCerts bounds what is read of one entry: there are never more than a few
// authorities at a time.
const maxCerts = 16

// encode writes the state as entries of a Secret.
func (s *state) encode() (map[string][]byte, error) {
	data := map[string][]byte{}
	if err := encodePair(data, entryAuthority, s.authority, s.earlier...); err != nil {
		return nil, err
	}
	if err := encodePair(data, entryServing, s.serving); err != nil {
		return nil, err
	}
	if s.next == nil {
		return data, nil
	}
	if !s.since.IsZero() {
		data[entrySince] = []byte(s.since.UTC().Format(time.RFC3339Nano))
	}
	return data, encodePair(data, entryNext, s.next)
}

func encodePair(data map[string][]byte, name string, pair *tls.Certificate, others ...*x509.Certificate) error {
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return fmt.Errorf("write %s: %w", name+suffixKey, err)
	}
	data[name+suffixKey] = pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: der})
	data[name+suffixCert], err = certutil.EncodeCertificates(append([]*x509.Certificate{pair.Leaf}, others...)...)
	return err
}

// decode reads a state. It is strict: the caller starts again from anything that
// encode has not written.
func decode(data map[string][]byte) (s *state, err error) {
	s = &state{}
	if s.authority, s.earlier, err = decodePair(data, entryAuthority, true); err != nil {
		return nil, err
	}
	if s.serving, _, err = decodePair(data, entryServing, false); err != nil {
		return nil, err
	}
	if _, ok := data[entryNext+suffixCert]; !ok {
		return s, nil
	}
	if s.next, _, err = decodePair(data, entryNext, true); err != nil {
		return nil, err
	}
	if text := data[entrySince]; len(text) > 0 {
		if s.since, err = time.Parse(time.RFC3339Nano, string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", entrySince, err)
		}
	}
	return s, nil
}

// decodePair reads a certificate with its key, and the certificates after it.
func decodePair(data map[string][]byte, name string, authority bool) (*tls.Certificate, []*x509.Certificate, error) {
	certs, err := certutil.ParseCertsPEM(data[name+suffixCert])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name+suffixCert, err)
	}
	if len(certs) > maxCerts {
		return nil, nil, fmt.Errorf("%s: %d certificates, at most %d are read", name+suffixCert, len(certs), maxCerts)
	}
	for _, c := range certs {
		if authority && !c.IsCA {
			return nil, nil, fmt.Errorf("%s: a certificate that is no authority", name+suffixCert)
		}
	}
	pair, err := tls.X509KeyPair(data[name+suffixCert], data[name+suffixKey])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	pair.Certificate = pair.Certificate[:1]
	return &pair, certs[1:], nil
}
