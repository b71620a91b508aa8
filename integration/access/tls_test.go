package access

import (
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

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
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
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key, a.key)
	return a
}

// server returns a server certificate and its key, in PEM.
func (a *authority) server(t testing.TB) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	_, cert = issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test server"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, private, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// trusted returns the configuration of a client that trusts only a.
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

// issue returns a certificate for the key subject, signed by parent, or self-signed if parent is
// nil.
func issue(
	t testing.TB, template, parent *x509.Certificate, subject, signer *ecdsa.PrivateKey,
) (*x509.Certificate, []byte) {
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

// startTLSServer starts a server that accepts TLS only, with a certificate issued by a, and
// requires a password.
func startTLSServer(t *testing.T, image string, a *authority, password string) *servers.Server {
	t.Helper()
	cert, key := a.server(t)
	return servers.StartWith(t, image, servers.Launch{
		Args: []string{"--tls-cert-file", "server.crt", "--tls-key-file", "server.key",
			"--tls-auth-clients", "no", "--requirepass", password},
		Files: map[string][]byte{"server.crt": cert, "server.key": key},
		TLS:   true,
	})
}

// TestTLS: every client and the daemon decide over TLS with a password. A server with another
// authority's certificate receives no demand, and a server that gets a wrong password decides none.
func TestTLS(t *testing.T) {
	const right, wrong = "open-sesame", "marked-wrong-password"
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		ours, other := newAuthority(t), newAuthority(t)
		server := startTLSServer(t, image, ours, right)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			d := clients.Dialing{Addrs: []string{server.Addr}, Password: right, TLS: ours.trusted()}
			s := lib.Client(t, d).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			key := servers.FreshKey(t)
			if res := clients.Ask(t, s, clients.Take(key)); !res.Allowed {
				t.Errorf("got %+v, want an admission", res)
			}
			if found, err := s.Probe(t.Context()); err != nil || len(found.Warnings) > 0 {
				t.Errorf("Probe: got %+v, %v; want no warning and no error", found, err)
			}
			if lib.Caching != nil {
				clients.CheckCacheEnabled(t,
					lib.NewCache(t, d, clients.CacheOptions{Age: time.Hour}), true)
			}
			for what, change := range map[string]func(*clients.Dialing){
				"another authority": func(d *clients.Dialing) { d.TLS = other.trusted() },
				"another name": func(d *clients.Dialing) {
					d.TLS = ours.trusted()
					d.TLS.ServerName = "example.com"
				},
				"wrong password": func(d *clients.Dialing) { d.Password = wrong },
				"no TLS":         func(d *clients.Dialing) { d.TLS = nil },
			} {
				d := d
				change(&d)
				s := lib.Client(t, d).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
				_, err := s.Take(t.Context(), clients.Take(key))
				if !errors.Is(err, ratelimit.ErrUnavailable) ||
					what != "no TLS" && errors.Is(err, ratelimit.ErrOutcomeUnknown) {
					t.Errorf("%s: %v, want ErrUnavailable", what, err)
				}
				wantNoSecret(t, what, err, key, right, wrong)
			}
			if n := clients.Recorded(t, s, key); n != 1 {
				t.Errorf("%d units recorded, want 1", n)
			}
		})
		t.Run("daemon", func(t *testing.T) { serveOverTLS(t, bin, server, ours, right, wrong) })
	})
}

// serveOverTLS runs daemons on each client, which trust the system's authorities or those of a
// file.
func serveOverTLS(
	t *testing.T, bin string, server *servers.Server, ours *authority, right, wrong string,
) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, ours.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"rediss", "rueidiss", "valkeys"} {
		url := func(password, params string) string {
			return fmt.Sprintf("--store=%s://:%s@%s?timeout=5s%s",
				scheme, password, server.Addr, params)
		}
		distrusting := daemon.Start(t, bin, url(right, ""), "--on-failure=closed")
		status, body, _ := distrusting.Post(t, "/v1/decide", "marked-key")
		if status != http.StatusServiceUnavailable {
			t.Errorf("%s without the authority: got status %d, want 503: %s", scheme, status, body)
		}
		trusting := daemon.Start(t, bin, url(right, "&tls-ca="+ca), "--on-failure=closed")
		trusting.AwaitStore(t, "marked-key") // a busy machine may not connect within a dial's time
		status, body, _ = trusting.Post(t, "/v1/decide", "marked-key")
		if status != http.StatusOK {
			t.Errorf("%s with the authority: got status %d, want 200: %s", scheme, status, body)
		}
		t.Run(scheme+" and the system's authorities", func(t *testing.T) {
			t.Setenv("SSL_CERT_FILE", ca)
			trusting := daemon.Start(t, bin, url(right, ""), "--on-failure=closed")
			trusting.AwaitStore(t, "marked-key")
			if status, body, _ := trusting.Post(t, "/v1/decide",
				"marked-key"); status != http.StatusOK {
				t.Errorf("got status %d, want 200: %s", status, body)
			}
		})
		out := daemon.RunRefused(t, bin, url(wrong, "&tls-ca="+ca))
		for _, text := range []string{body, out, distrusting.Logged(), trusting.Logged()} {
			for _, secret := range []string{"marked-key", right, wrong} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: the output contains %q: %s", scheme, secret, text)
				}
			}
		}
	}
}
