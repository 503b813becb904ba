package tlsfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// write writes a certificate with the given number and its key.
func write(t *testing.T, dir string, number int64, age time.Duration) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		written := time.Now().Add(-age)
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func number(t *testing.T, config *tls.Config) int64 {
	t.Helper()
	c, err := config.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return parsed.SerialNumber.Int64()
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	cert, key := write(t, dir, 1, time.Hour)
	config, err := Config(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if config.MinVersion < tls.VersionTLS12 || number(t, config) != 1 {
		t.Errorf("version %x, certificate %d", config.MinVersion, number(t, config))
	}
	write(t, dir, 2, time.Minute)
	if n := number(t, config); n != 2 {
		t.Errorf("certificate %d after it was renewed", n)
	}
	if err := os.WriteFile(cert, []byte("half of i"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := number(t, config); n != 2 {
		t.Errorf("certificate %d while it is being written", n)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if n := number(t, config); n != 2 {
		t.Errorf("certificate %d without its key", n)
	}
}

func TestConfigBad(t *testing.T) {
	cert, key := write(t, t.TempDir(), 1, 0)
	if config, err := Config("", ""); config != nil || err != nil {
		t.Errorf("nothing named: %v, %v", config, err)
	}
	for _, names := range [][2]string{{cert, ""}, {"", key}, {cert, cert}, {cert, "nowhere"}} {
		if _, err := Config(names[0], names[1]); err == nil {
			t.Errorf("%v was taken", names)
		}
	}
}
