package local

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// pki issues the certificates of one cluster and keeps them in its folder, so
// that a cluster that is started again finds them.
type pki struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

const validity = 10 * 365 * 24 * time.Hour

// newPKI reads the certificate authority from the folder or creates one.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	var err error
	if exists(p.cert("ca")) {
		if p.ca, p.key, err = pkiutil.TryLoadCertAndKeyFromDisk(dir, "ca"); err != nil {
			return nil, fmt.Errorf("%s: the certificate authority is damaged, remove the folder to create another: %w", dir, err)
		}
		return p, nil
	}
	if p.ca, p.key, err = pkiutil.NewCertificateAuthority(certConfig("daybreak-playground")); err != nil {
		return nil, err
	}
	return p, pkiutil.WriteCertAndKey(dir, "ca", p.ca, p.key)
}

func certConfig(commonName string, groups ...string) *pkiutil.CertConfig {
	return &pkiutil.CertConfig{
		Config: certutil.Config{
			CommonName: commonName, Organization: groups, NotBefore: time.Now().Add(-time.Minute),
			AltNames: certutil.AltNames{
				DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
				IPs:      []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
			},
			Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		},
		NotAfter: time.Now().Add(validity), EncryptionAlgorithm: kubeadmapi.EncryptionAlgorithmECDSAP256,
	}
}

func (p *pki) cert(name string) string    { return filepath.Join(p.dir, name+".crt") }
func (p *pki) keyFile(name string) string { return filepath.Join(p.dir, name+".key") }

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// issue creates a certificate for a server at the loopback address and for a
// client with the given name and groups, unless there is one.
func (p *pki) issue(name, commonName string, groups ...string) error {
	if exists(p.cert(name)) { // which is written after its key
		return nil
	}
	cert, key, err := pkiutil.NewCertAndKey(p.ca, p.key, certConfig(commonName, groups...))
	if err != nil {
		return fmt.Errorf("create the certificate of %s: %w", name, err)
	}
	return pkiutil.WriteCertAndKey(p.dir, name, cert, key)
}
