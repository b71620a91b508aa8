package serverurl

import (
	"crypto"
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
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

func parse(t *testing.T, raw string) (Config, error) {
	t.Helper()
	u, err := backend.ParseURL(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	lib := Library{Plain: "redis", TLS: "rediss"}
	if strings.HasPrefix(raw, "caching") {
		lib = Library{Plain: "caching", TLS: "cachings", Caches: true}
	}
	return lib.parse(u)
}

func TestParse(t *testing.T) {
	options := func(set func(*serverstore.OpenOptions)) (opts serverstore.OpenOptions) {
		set(&opts)
		return opts
	}
	for raw, want := range map[string]Config{
		"redis://h":       {Addrs: []string{"h:6379"}},
		"redis://h:1/2":   {Addrs: []string{"h:1"}, DB: 2},
		"redis://[::1]/":  {Addrs: []string{"[::1]:6379"}},
		"redis://:p%3F@h": {Addrs: []string{"h:6379"}, Password: "p?"},
		"redis://u:p@h?prefix=p&timeout=2s&linger=1s": {
			Addrs: []string{"h:6379"}, Username: "u", Password: "p",
			Options: options(func(o *serverstore.OpenOptions) {
				o.Prefix, o.Timeout, o.Linger = "p", 2*time.Second, time.Second
			}),
		},
		"redis+cluster://a,[::1]:1,b:2/": {
			Kind: Cluster, Addrs: []string{"a:6379", "[::1]:1", "b:2"},
		},
		"redis+sentinel://u:p@a,b:1/main?sentinel-user=su&sentinel-password=a%26b+": {
			Kind: Sentinel, Addrs: []string{"a:26379", "b:1"}, MasterName: "main",
			Username: "u", Password: "p", SentinelUsername: "su", SentinelPassword: "a&b+",
		},
		"redis+sentinel://a/main/3": {
			Kind: Sentinel, Addrs: []string{"a:26379"}, MasterName: "main", DB: 3,
		},
		"caching://h?cache-entries=0": {Addrs: []string{"h:6379"}, NoCache: true},
		"caching+cluster://h?cache-entries=1&cache-bytes=2&cache-age=3s": {
			Kind: Cluster, Addrs: []string{"h:6379"},
			Options: options(func(o *serverstore.OpenOptions) {
				o.CacheEntries, o.CacheBytes, o.CacheAge = 1, 2, 3*time.Second
			}),
		},
	} {
		got, err := parse(t, raw)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestTag(t *testing.T) {
	c, err := parse(t, "redis://h?tag=::")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"tenant::42": "tenant", "a::b::c": "a", "::b": "", "none": "", "": "", "a:b": "",
	} {
		if got := c.Options.Tag(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"redis:":                                                 "no host",
		"redis:marked:6379":                                      "no host",
		"redis:///0":                                             "no host",
		"redis://a,b":                                            "redis+cluster://",
		"redis://h/marked":                                       "not a number",
		"redis://h/-1":                                           "not a number",
		"redis://h/1/2":                                          "not a number",
		"redis+cluster://h/0":                                    "no databases",
		"redis+sentinel://h":                                     "name of the primary",
		"redis+sentinel://h//0":                                  "name of the primary",
		"redis+sentinel://h/m/marked":                            "not a number",
		"redis://h?timeout=marked":                               `"timeout"`,
		"redis://h?timeout=0s":                                   `"timeout"`,
		"redis://h?timeout=1s&linger=501ms":                      "Linger",
		"redis://h?linger=-1ms":                                  `"linger"`,
		"redis://h?prefix=a{marked":                              "Prefix",
		"redis://h?prefix=":                                      `"prefix"`,
		"redis://h?tag=":                                         `"tag"`,
		"redis://h?tag=a&tag=b":                                  `"tag"`,
		"redis://h?colour=marked":                                `"colour"`,
		"redis://h?cache-entries=1":                              `"cache-entries"`,
		"caching://h?cache-entries=-1":                           `"cache-entries"`,
		"caching://h?cache-bytes=0":                              `"cache-bytes"`,
		"caching://h?cache-age=0s":                               `"cache-age"`,
		"redis://h?sentinel-user=u":                              `"sentinel-user"`,
		"redis://h?tls-ca=file":                                  `"tls-ca"`,
		"rediss://h?tls-skip-hostname=marked":                    `"tls-skip-hostname"`,
		"rediss://h?tls-skip-hostname=true&tls-server-name=n":    `"tls-skip-hostname"`,
		"redis://h?tls-skip-hostname=true":                       `"tls-skip-hostname"`,
		"rediss://h?tls-ca=marked":                               `"tls-ca"`,
		"rediss://h?tls-cert=marked":                             `"tls-cert"`,
		"rediss://h?tls-key=marked":                              `"tls-cert"`,
		"rediss://h?tls-cert=marked&tls-key=marked":              `"tls-cert"`,
		"redis://h?sentinel-password=marked&mark=ed":             "unknown",
		"redis+sentinel://h/m?sentinel-password=a&marked=b":      "unknown",
		"redis+sentinel://h/m?sentinel-password=marked&timeout=": `"timeout"`,
	} {
		c, err := parse(t, raw)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want ErrInvalid with %s", raw, c, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "marked") {
			t.Errorf("a value is shown: %v", err)
		}
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	certFile := write("cert.pem", "CERTIFICATE", cert)
	keyFile := write("key.pem", "PRIVATE KEY", private)
	params := "?tls-server-name=n&tls-ca=" + certFile + "&tls-cert=" + certFile +
		"&tls-key=" + keyFile
	for _, raw := range []string{"rediss://h", "rediss+cluster://h", "rediss+sentinel://h/m"} {
		c, err := parse(t, raw)
		if err != nil || c.TLS == nil || c.TLS.RootCAs != nil || c.TLS.Certificates != nil ||
			c.TLS.ServerName != "" || c.TLS.InsecureSkipVerify {
			t.Errorf("%s: %+v, %v", raw, c.TLS, err)
		}
		c, err = parse(t, raw+params)
		if err != nil || c.TLS.RootCAs == nil || len(c.TLS.Certificates) != 1 ||
			c.TLS.ServerName != "n" {
			t.Errorf("%s: %+v, %v", raw, c.TLS, err)
		}
		if _, err := parse(t, raw+"?tls-ca="+keyFile); !errors.Is(err,
			driver.ErrInvalid) {
			t.Errorf("%s: a key as certificate: %v", raw, err)
		}
	}
}

// TestTLSSkipHostname: a server's certificate may have any name if a known authority has signed it.
func TestTLSSkipHostname(t *testing.T) {
	own, file := issue(t, "own", nil)
	other, _ := issue(t, "other", nil)
	between, _ := issue(t, "between", &own)
	leaf, _ := issue(t, "leaf", &between)
	for name, c := range map[string]struct {
		params string
		cert   tls.Certificate
		ok     bool
	}{
		"the name":         {"?tls-server-name=own&tls-ca=" + file, own, true},
		"another name":     {"?tls-server-name=h&tls-ca=" + file, own, false},
		"no name":          {"?tls-skip-hostname=true&tls-ca=" + file, own, true},
		"no authority":     {"?tls-skip-hostname=true&tls-ca=" + file, other, false},
		"a chain":          {"?tls-skip-hostname=true&tls-ca=" + file, leaf, true},
		"not the system's": {"?tls-skip-hostname=true", own, false},
	} {
		config, err := parse(t, "rediss://h"+c.params)
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			server := tls.Server(there, &tls.Config{Certificates: []tls.Certificate{c.cert}})
			_ = server.HandshakeContext(t.Context())
			_ = there.Close()
		}()
		if err := tls.Client(here, config.TLS).HandshakeContext(t.Context()); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		_ = here.Close()
		<-served
	}
}

// issue returns a certificate for a host, with those up to that of an authority, or by itself, and
// the path of its PEM file.
func issue(
	t *testing.T, host string, by *tls.Certificate,
) (cert tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host},
		Subject: pkix.Name{CommonName: host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	parent, signer, chain := template, crypto.PrivateKey(key), [][]byte(nil)
	if by != nil {
		if parent, err = x509.ParseCertificate(by.Certificate[0]); err != nil {
			t.Fatal(err)
		}
		signer, chain = by.PrivateKey, by.Certificate
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "cert.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	chain = append([][]byte{der}, chain...)
	return tls.Certificate{Certificate: chain, PrivateKey: key}, file
}
