// Package tlsfile serves TLS with a certificate from files that someone else
// renews, as the secret of a cert-manager is.
package tlsfile

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Config returns how to serve with the certificate and the key in these files.
// They are read again when they change; a pair that can't be read then leaves
// the last one in use. Two empty names mean no TLS, and a nil Config.
func Config(cert, key string) (*tls.Config, error) {
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, errors.New("a certificate needs its key: name both files")
	}
	p := &pair{cert: cert, key: key}
	if _, err := p.get(nil); err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get}, nil
}

// pair is a certificate on disk.
type pair struct {
	cert, key string

	mu     sync.Mutex
	read   time.Time // when the files that were read last had been written
	loaded *tls.Certificate
}

// get returns the certificate, which is read again if it is newer.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var newest time.Time
	for _, path := range []string{p.cert, p.key} {
		info, err := os.Stat(path)
		if err != nil {
			return p.last(err)
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if p.loaded != nil && newest.Equal(p.read) {
		return p.loaded, nil
	}
	loaded, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return p.last(err)
	}
	p.loaded, p.read = &loaded, newest
	return p.loaded, nil
}

// last returns the certificate that was read last, if there is one.
func (p *pair) last(err error) (*tls.Certificate, error) {
	if p.loaded != nil {
		return p.loaded, nil
	}
	return nil, err
}
