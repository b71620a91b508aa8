package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// allCredentials returns a command line with each kind of file of credentials, by their names.
func allCredentials(t *testing.T) (c *Serve, files map[string]string, a *apitest.Authority) {
	t.Helper()
	a = apitest.NewAuthority(t)
	a.Issue("server")
	a.Issue("inner")
	copyFile(t, a.Path("ca.pem"), a.Path("inner-ca.pem"))
	c = &Serve{ReadTokenFile: apitest.TokenFile(t, "the-reader-of-before"),
		WriteTokenFile: apitest.TokenFile(t, "the-writer-of-before"),
		AccessFile: apitest.WriteFile(t, filepath.Join(t.TempDir(), "access.yaml"),
			"tokens: [{name: ann, token: the-access-of-before, may: [write]}]\n"),
		TLS: TLSFlags{a.Path("server.pem"), a.Path("server.key"), a.Path("ca.pem")}}
	c.envoy.TLS = &envoy.TLSFiles{Cert: a.Path("inner.pem"), Key: a.Path("inner.key"),
		ClientCA: a.Path("inner-ca.pem")}
	return c, map[string]string{
		"read-token-file": c.ReadTokenFile, "write-token-file": c.WriteTokenFile,
		"access-file": c.AccessFile,
		"tls-cert":    c.TLS.Cert, "tls-client-ca": c.TLS.ClientCA,
		"grpc-tls-cert": c.envoy.TLS.Cert, "grpc-tls-client-ca": c.envoy.TLS.ClientCA,
	}, a
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	apitest.WriteFile(t, to, string(text))
}

// TestCredentialsAlone: each file takes effect while any other is bad, is a pipe, or is not there;
// so a token that was removed is of no use. A pipe keeps neither a reload nor the end from coming.
func TestCredentialsAlone(t *testing.T) {
	// The first Notify starts a goroutine of the process, which a bubble may not have.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for kind, spoil := range map[string]func(path string) error{
		"bad":     func(path string) error { return os.WriteFile(path, []byte("bad"), 0o600) },
		"missing": os.Remove,
		"folder": func(path string) error {
			_ = os.Remove(path)
			return os.Mkdir(path, 0o700)
		},
		"pipe": func(path string) error {
			_ = os.Remove(path)
			return syscall.Mkfifo(path, 0o600)
		},
		"link to a pipe": func(path string) error {
			_ = os.Remove(path)
			if err := syscall.Mkfifo(path+".pipe", 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".pipe", path)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, bad := range []string{"read-token-file", "write-token-file",
				"access-file", "tls-cert", "tls-client-ca", "grpc-tls-cert", "grpc-tls-client-ca"} {
				c, files, a := allCredentials(t)
				var log apitest.Log
				s, err := c.newCredentials(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				if err := spoil(files[bad]); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				status := func(path, token string) int {
					w := httptest.NewRecorder()
					r := httptest.NewRequest(http.MethodPost, path, nil)
					r.Header.Set("Authorization", "Bearer "+token)
					a := httpapi.NewAccess(&s.Table, httpapi.NewAuditLog(nil, decision.New(nil)))
					a.Only(ok).ServeHTTP(w, r)
					return w.Code
				}
				inForce := func() map[string]any {
					own, grpc := s.certificates.current.Load(), s.grpc.current.Load()
					return map[string]any{
						"read-token-file":    status("/metrics", "the-reader-of-before") == 200,
						"write-token-file":   status("/v1/reset", "the-writer-of-before") == 200,
						"access-file":        status("/v1/reset", "the-access-of-before") == 200,
						"tls-cert":           own.Certificates[0].Leaf.SerialNumber.Int64(),
						"tls-client-ca":      own.ClientCAs,
						"grpc-tls-cert":      grpc.Certificates[0].Leaf.SerialNumber.Int64(),
						"grpc-tls-client-ca": grpc.ClientCAs,
					}
				}
				before := inForce()
				for name := range files {
					if name == bad {
						continue
					}
					switch {
					case strings.HasSuffix(name, "token-file"):
						apitest.WriteFile(t, files[name], "another-token-of-the-tests")
					case name == "access-file":
						apitest.WriteFile(t, files[name], "{}\n")
					case strings.HasSuffix(name, "-ca"):
						copyFile(t, apitest.NewAuthority(t).Path("ca.pem"), files[name])
					default:
						a.Issue(strings.TrimSuffix(filepath.Base(files[name]), ".pem"))
					}
				}
				time.Sleep(time.Second)
				after := inForce()
				for name := range files {
					if changed := before[name] != after[name]; changed != (name != bad) {
						t.Errorf("%s is %s: %s changed %t", bad, kind, name, changed)
					}
				}
				for _, f := range s.followed {
					if got := f.Status(); (got.Err != nil) != (f.name == bad) {
						t.Errorf("%s is bad: the state of %s is %v", bad, f.name, got.Err)
					}
				}
				if n := strings.Count(log.String(), "level=ERROR"); n != 1 ||
					!strings.Contains(log.String(), "files="+bad+" ") {
					t.Errorf("%d errors are logged of %s:\n%s", n, bad, &log)
				}
				s.Close()
			}
		})
	}
}
