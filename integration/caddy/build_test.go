package caddy

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

// A page is docs/caddy.md: its blocks of a language, in their order.
type page struct{ shell, caddyfile []string }

var readPage = sync.OnceValues(func() (p page, err error) {
	text, err := os.ReadFile(filepath.Join(servers.Module, "docs/caddy.md"))
	if err != nil {
		return p, err
	}
	for _, block := range regexp.MustCompile("(?ms)^```(sh|caddy)\n(.*?)^```").
		FindAllStringSubmatch(string(text), -1) {
		if block[1] == "sh" {
			p.shell = append(p.shell, block[2])
		} else {
			p.caddyfile = append(p.caddyfile, block[2])
		}
	}
	return p, nil
})

// built is a folder with a Caddy that is built by the commands of the page, with the modules of
// this tree in place of released ones.
var built = sync.OnceValues(func() (dir string, err error) {
	p, err := readPage()
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(servers.Module)
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "ratelimit-caddy-"); err != nil {
		return "", err
	}
	servers.AtEnd(func() error { return os.RemoveAll(dir) })
	// The last block builds what the first does, and PostgreSQL.
	commands := regexp.MustCompile(`--with github.com/truewindow/ratelimit/(\S+)`).ReplaceAllString(
		p.shell[len(p.shell)-1], "--with github.com/truewindow/ratelimit/$1@v0.1.0="+root+"/$1")
	commands = strings.ReplaceAll(commands, " build ", " build v2.11.9 --replace "+
		"github.com/truewindow/ratelimit@v0.1.0="+root+" ")
	began := time.Now()
	if out, err := shell(dir, commands); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	servers.Measured("Caddy is built in %.1f s", time.Since(began).Seconds())
	return dir, nil
})

// shell runs commands in a folder, outside of the workspace, and returns what they print.
func shell(dir, commands string) (string, error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// build returns the folder of the Caddy.
func build(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A process is a running Caddy.
type process struct {
	testing.TB
	url, admin string
	client     http.Client
}

// start runs Caddy with a Caddyfile without global options, whose sites have the placeholder PORT.
func start(t *testing.T, file string) *process {
	t.Helper()
	dir := build(t)
	p := &process{TB: t, url: "http://localhost:" + port(t), admin: "127.0.0.1:" + port(t)}
	p.client.Transport = &http.Transport{MaxIdleConnsPerHost: 8}
	name := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(name, []byte(p.config(file)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "caddy"), "run", "--config", name)
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log of Caddy:\n%s", &log)
		}
	})
	servers.Within(t, func() bool {
		res, err := p.client.Get("http://" + p.admin + "/config/")
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	}, "Caddy does not start")
	return p
}

// config returns a Caddyfile with the address of the API and the port of the sites.
func (p *process) config(file string) string {
	return "{\nadmin " + p.admin + "\npersist_config off\n}\n" +
		strings.ReplaceAll(file, "http://localhost:8080", p.url)
}

// reload makes Caddy load another Caddyfile.
func (p *process) reload(file string) error {
	res, err := p.client.Post("http://"+p.admin+"/load", "text/caddyfile",
		strings.NewReader(p.config(file)))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %w", res.Status, &text, err)
	}
	return nil
}

func port(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
