package local

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki makes the certificates of one cluster and keeps them in its folder, so
// that a cluster that is started again finds them.
type pki struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

const validity = 10 * 365 * 24 * time.Hour

// newPKI reads the authority from the folder or makes one.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	if p.exists("ca") {
		err := p.load()
		return p, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "daybreak-playground"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	if err := p.write("ca", der, key); err != nil {
		return nil, err
	}
	err = p.load()
	return p, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func (p *pki) cert(name string) string    { return filepath.Join(p.dir, name+".crt") }
func (p *pki) keyFile(name string) string { return filepath.Join(p.dir, name+".key") }

func (p *pki) exists(name string) bool {
	_, err := os.Stat(p.keyFile(name))
	return err == nil
}

func (p *pki) load() error {
	certPEM, err := os.ReadFile(p.cert("ca"))
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(p.keyFile("ca"))
	if err != nil {
		return err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return fmt.Errorf("%s: the authority's files are damaged; remove the folder to start anew", p.dir)
	}
	if p.ca, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return err
	}
	p.key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	return err
}

// write stores a certificate and its key; the key last, since it tells that
// both are there.
func (p *pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(p.cert(name), text, 0o644); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

func (p *pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.keyFile(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// issue makes a certificate for a server at the loopback address and for a
// client with the given name and groups, unless there is one.
func (p *pki) issue(name, commonName string, groups ...string) error {
	if p.exists(name) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName, Organization: groups},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.key)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	return p.write(name, der, key)
}

// issueKey makes a key without a certificate, unless there is one.
func (p *pki) issueKey(name string) error {
	if p.exists(name) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return p.writeKey(name, key)
}
