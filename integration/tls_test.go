package integration

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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// An authority signs certificates for servers on this machine.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert, a.pem = issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key, a.key)
	return a
}

// server returns the certificate of a server and its key, in PEM.
func (a *authority) server(t testing.TB) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	_, cert = issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test server"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, private, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// trusted is the configuration of a client that trusts a, and nobody else.
func (a *authority) trusted() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate of subject's key, signed by the parent's; no parent: by itself.
func issue(t testing.TB, template, parent *x509.Certificate, subject, signer *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &subject.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// startTLSServer starts a server that speaks TLS only, with a certificate of a, and wants a password.
func startTLSServer(t *testing.T, image string, a *authority, password string) *server {
	t.Helper()
	cert, key := a.server(t)
	return startServerWith(t, image,
		testcontainers.WithFiles(
			testcontainers.ContainerFile{Reader: bytes.NewReader(cert), ContainerFilePath: "/server.crt", FileMode: 0o644},
			testcontainers.ContainerFile{Reader: bytes.NewReader(key), ContainerFilePath: "/server.key", FileMode: 0o644},
		),
		testcontainers.WithCmdArgs("--port", "0", "--tls-port", "6379", "--tls-cert-file", "/server.crt", "--tls-key-file", "/server.key",
			"--tls-auth-clients", "no", "--requirepass", password))
}

// TestTLS decides over TLS with a password, with every client and with the daemon. A server whose certificate is somebody else's gets no demand, and
// one that is given a wrong password answers none.
func TestTLS(t *testing.T) {
	const right, wrong = "open-sesame", "marked-wrong-password"
	bin := buildDaemon(t)
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			ours, other := newAuthority(t), newAuthority(t)
			server := startTLSServer(t, image, ours, right)
			eachLibrary(t, func(t *testing.T, lib library) {
				d := dialing{addrs: []string{server.addr}, password: right, tls: ours.trusted()}
				s := lib.client(t, d).newStore(t, &redisstore.Options{Timeout: patient})
				key := freshKey(t)
				if res := ask(t, s, take(key)); !res.Allowed {
					t.Errorf("%+v", res)
				}
				if found, err := s.probe(t.Context()); err != nil || len(found.Warnings) > 0 {
					t.Errorf("%+v, %v", found, err)
				}
				if lib.caching != nil {
					checkCacheEnabled(t, lib.newCache(t, d, cacheOptions{age: time.Hour}), true)
				}
				for what, change := range map[string]func(*dialing){
					"another authority": func(d *dialing) { d.tls = other.trusted() },
					"another name":      func(d *dialing) { d.tls = ours.trusted(); d.tls.ServerName = "example.com" },
					"wrong password":    func(d *dialing) { d.password = wrong },
					"no TLS":            func(d *dialing) { d.tls = nil },
				} {
					d := d
					change(&d)
					s := lib.client(t, d).newStore(t, &redisstore.Options{Timeout: patient})
					res, err := s.Take(t.Context(), take(key))
					if !errors.Is(err, ratelimit.ErrUnavailable) || what != "no TLS" && errors.Is(err, ratelimit.ErrOutcomeUnknown) || res.Allowed {
						t.Errorf("%s: %+v, %v, want ErrUnavailable", what, res, err)
					}
					wantNoSecret(t, what, err, key, right, wrong)
				}
				if n := recorded(t, s, key); n != 1 {
					t.Errorf("%d units recorded, want 1", n)
				}
			})
			t.Run("daemon", func(t *testing.T) { serveOverTLS(t, bin, server, ours, right, wrong) })
		})
	}
}

func serveOverTLS(t *testing.T, bin string, server *server, ours *authority, right, wrong string) {
	url := func(password string) string { return fmt.Sprintf("--store=rediss://:%s@%s", password, server.addr) }
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, ours.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	distrusting := startDaemon(t, bin, url(right), "--on-failure=closed", "--timeout=5s")
	status, body, _ := distrusting.post(t, "/v1/take", "marked-key")
	if status != http.StatusServiceUnavailable {
		t.Errorf("without the authority: %d %s", status, body)
	}
	t.Setenv("SSL_CERT_FILE", ca)
	trusting := startDaemon(t, bin, url(right), "--on-failure=closed", "--timeout=5s")
	if status, body, _ := trusting.post(t, "/v1/take", "marked-key"); status != http.StatusOK {
		t.Errorf("with the authority: %d %s", status, body)
	}
	out := runRefused(t, bin, url(wrong))
	for _, text := range []string{body, out, distrusting.logged(), trusting.logged()} {
		for _, secret := range []string{"marked-key", right, wrong} {
			if strings.Contains(text, secret) {
				t.Errorf("%q in %s", secret, text)
			}
		}
	}
}
