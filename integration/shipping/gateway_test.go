package shipping

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/truewindow/ratelimit/integration/gateway"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestImageUnderGateways: the image serves with the command, the arguments and the variables that
// gateways give to a container, of which only the addresses and the port of xDS are those of this
// machine. It gets its limits over TLS with a certificate of its own, is healthy at the path of
// their probes, has metrics at their port, and stops within their time.
func TestImageUnderGateways(t *testing.T) {
	build(t)
	servers.NeedImage(t, valkey)
	server := docker(t, "run", "--detach", "--label="+servers.Label, valkey)
	t.Cleanup(func() { docker(t, "rm", "--force", server) })
	redis := addressOf(t, server) + ":6379"
	certs := writeCertificates(t)
	for _, tt := range []struct {
		file, xdsHost, node string
		args                []string
		secure              bool
	}{
		{"envoy-gateway.env", "envoy-gateway", "envoy-ratelimit", nil, true},
		{"envoy-ai-gateway.env",
			"ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local",
			"envoy-ai-gateway-ratelimit",
			[]string{"--quotaRateLimitServiceAddr=a.envoy-gateway-system"}, false},
	} {
		t.Run(tt.file, func(t *testing.T) {
			servers.CountTest(t, image)
			var options []grpc.ServerOption
			secure := insecure.NewCredentials()
			if tt.secure {
				options = append(options, grpc.Creds(credentials.NewTLS(certs.server())))
				secure = credentials.NewTLS(certs.client("envoy-ratelimit"))
			}
			g := gateway.Start(t, "0.0.0.0", tt.node, options...)
			_, port, _ := net.SplitHostPort(g.Addr)
			args := []string{"run", "--detach", "--label=" + servers.Label, "--read-only",
				"--cap-drop=ALL", "--user=65534:65534", "--entrypoint=/bin/ratelimit",
				"--volume=" + certs.dir + ":/certs:ro",
				"--volume=" + certs.dir + ":/redis-certs:ro",
				"--add-host=" + tt.xdsHost + ":host-gateway",
				"--env=CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=" + g.Client("image")}
			for _, entry := range readEnvironment(t, tt.file) {
				name, value, _ := strings.Cut(entry, "=")
				switch name {
				case "CONFIG_GRPC_XDS_SERVER_URL":
					host, _, _ := net.SplitHostPort(value)
					value = net.JoinHostPort(host, port)
				case "REDIS_URL":
					value = redis
				case "REDIS_TLS": // servers of tests have none here
					value = "false"
				}
				args = append(args, "--env="+name+"="+value)
			}
			id := docker(t, append(append(args, image), tt.args...)...)
			t.Cleanup(func() { docker(t, "rm", "--force", id) })
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(docker(t, "logs", id))
				}
			})
			if err := g.Send(&config.RateLimitConfig{Name: "shop", Domain: "shop",
				Descriptors: []*config.RateLimitDescriptor{{Key: "user",
					RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_HOUR,
						RequestsPerUnit: 2}}}}); err != nil {
				t.Fatal(err)
			}
			host := addressOf(t, id)
			await(t, "http://"+host+":8080/healthcheck")
			if tt.secure {
				if text := fetch(t, "http://"+host+":19001/metrics"); !strings.Contains(text,
					"ratelimit_config_limits 1\n") {
					t.Errorf("the metrics are\n%s", text)
				}
			}
			conn, err := grpc.NewClient(host+":8081", grpc.WithTransportCredentials(secure))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i, want := range []rls.RateLimitResponse_Code{1, 1, 2} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
					&rls.RateLimitRequest{Domain: "shop",
						Descriptors: []*ratelimitv3.RateLimitDescriptor{{
							Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
								{Key: "user", Value: tt.file}}}}}, grpc.WaitForReady(true))
				cancel()
				if err != nil || resp.GetOverallCode() != want {
					t.Errorf("call %d: %v %v, want %v", i, resp, err, want)
				}
			}
			if got := docker(t, "exec", id, "/bin/ratelimit", "validate"); !strings.HasSuffix(got,
				": 1 limit") {
				t.Errorf("validate in the container: %s", got)
			}
			docker(t, "stop", "--time=30", id)
			if code := docker(t, "inspect", "--format={{.State.ExitCode}}", id); code != "0" {
				t.Errorf("after SIGTERM the exit code is %s", code)
			}
		})
	}
}

// addressOf returns the address of a container on Docker's bridge.
func addressOf(t *testing.T, id string) string {
	t.Helper()
	return docker(t, "inspect", "--format",
		"{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
}

// readEnvironment returns the variables that a gateway gives to a container.
func readEnvironment(t *testing.T, file string) (environ []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Module, "cmd/ratelimit/envoy/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			environ = append(environ, strings.TrimSpace(line))
		}
	}
	return environ
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// certificates are one certificate, with the names of Envoy Gateway's servers, that signs itself.
type certificates struct {
	dir   string // with tls.crt, tls.key and ca.crt
	pair  tls.Certificate
	roots *x509.CertPool
}

func writeCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{dir: t.TempDir(), roots: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "envoy-gateway"},
		DNSNames: []string{"envoy-gateway", "envoy-ratelimit"},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	for name, text := range map[string][]byte{"tls.crt": cert, "ca.crt": cert, "tls.key": secret} {
		// The user of the container reads them too.
		if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{c.dir, filepath.Dir(c.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c.pair, err = tls.X509KeyPair(cert, secret); err != nil {
		t.Fatal(err)
	}
	c.roots.AppendCertsFromPEM(cert)
	return c
}

// server returns what Envoy Gateway's server of xDS has: clients need a certificate.
func (c *certificates) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.pair}, ClientCAs: c.roots,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

func (c *certificates) client(name string) *tls.Config {
	return &tls.Config{RootCAs: c.roots, ServerName: name}
}
