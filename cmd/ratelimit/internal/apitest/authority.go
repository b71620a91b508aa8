package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority issues certificates.
type Authority struct {
	*testing.T
	dir    string
	Cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
	Expiry time.Time // of the last one
}

// NewAuthority returns an authority whose own certificate is in ca.pem.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{T: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour)}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.Cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.Write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	return key
}

// Path returns the path of a file of a.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// Write writes a file in PEM.
func (a *Authority) Write(name, kind string, der []byte) {
	a.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(a.Path(name), text, 0o600); err != nil {
		a.Fatal(err)
	}
}

// Issue writes name.pem and name.key, for 127.0.0.1, and returns the serial number.
func (a *Authority) Issue(name string) int64 {
	a.Helper()
	a.issued++
	a.Expiry = time.Now().Add(time.Duration(a.issued) * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(100 + a.issued),
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: a.Expiry}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.Write(name+".key", "EC PRIVATE KEY", private)
	a.Write(name+".pem", "CERTIFICATE", der)
	return 100 + a.issued
}

// Client returns a client that trusts a and has the certificate name, if that is not "".
func (a *Authority) Client(name string) *http.Client {
	a.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.Cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.Path(name+".pem"), a.Path(name+".key"))
		if err != nil {
			a.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config,
		DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}
