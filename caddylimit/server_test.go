package caddylimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers" // the directive header
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/map"     // the directive map
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite" // the directive method
	_ "github.com/caddyserver/caddy/v2/modules/logging"           // logs in files
	_ "github.com/caddyserver/caddy/v2/modules/metrics"           // the directive metrics
)

// A server is a Caddy in this process, of which there can be one.
type server struct {
	testing.TB
	addr, log string
	client    http.Client
}

func newServer(t testing.TB) *server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	s := &server{TB: t, addr: listener.Addr().String(), log: filepath.Join(t.TempDir(), "log")}
	s.client.Transport = &http.Transport{}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		stores.Range(func(url, _ any) bool {
			t.Errorf("the store %v is still open", url)
			return true
		})
	})
	return s
}

// adapt returns the JSON of a site with some directives, and of global options.
func (s *server) adapt(site string, options ...string) []byte {
	s.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	return adapt(s, fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	log {
		output file %s {
			roll_disabled
		}
	}
	%s
}
http://:%s {
	bind 127.0.0.1
	%s
}
`, s.log, strings.Join(options, "\n"), port, site))
}

func adapt(t testing.TB, file string) []byte {
	t.Helper()
	config, err := tryAdapt(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return config
}

func tryAdapt(file string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file),
		map[string]any{"filename": "Caddyfile"})
	return config, err
}

// load makes the server run a site, also in place of another.
func (s *server) load(site string, options ...string) {
	s.Helper()
	if err := caddy.Load(s.adapt(site, options...), true); err != nil {
		s.Fatal(err)
	}
}

// An answer is what a client gets.
type answer struct {
	*http.Response
	text string
}

// get requests a path with header fields "Name: value".
func (s *server) get(path string, fields ...string) answer {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.addr+path,
		http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	res, err := s.client.Do(r)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		// A reload closes a socket, with the connections that the server has not accepted.
		res, err = s.client.Do(r)
	}
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer{res, string(text)}
}

// want requests / with header fields and checks the statuses of the answers.
func (s *server) want(statuses []int, fields ...string) {
	s.Helper()
	for i, want := range statuses {
		if a := s.get("/", fields...); a.StatusCode != want {
			s.Errorf("request %d: got %d %s, want %d", i+1, a.StatusCode, a.text, want)
		}
	}
}

// logged returns what the server has logged.
func (s *server) logged() string {
	s.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}
