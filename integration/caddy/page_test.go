package caddy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestCaddyPage does what docs/caddy.md says: it builds a Caddy, runs its first Caddyfile on a
// server, and makes the requests; and it validates all of its Caddyfiles.
func TestCaddyPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		servers.Need(t, err.Error())
	}
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		dir := build(t)
		page, err := readPage()
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(page.shell[0], "\n")
		if out, err := shell(dir, list); err != nil || out != "http.handlers.limits\n" {
			t.Errorf("got %v and %s", err, out)
		}
		p := start(t, strings.Replace(page.caddyfile[0], "localhost:6379",
			servers.Start(t, image).Addr+"?timeout=10s", 1))
		_, requests, ok := strings.Cut(page.shell[1], "./caddy run\n")
		if !ok {
			t.Fatal("the page does not run Caddy")
		}
		out, err := shell(dir, strings.ReplaceAll(requests, "localhost:8080",
			strings.TrimPrefix(p.url, "http://")))
		const statuses = "200\n200\n200\n200\n200\n429\n"
		if err != nil || !strings.HasPrefix(out, statuses) ||
			!strings.Contains(out, "HTTP/1.1 429 ") ||
			!strings.Contains(out, "\nRatelimit: \"burst\";r=0;t=") {
			t.Errorf("got %v and\n%s", err, out)
		}
		for _, file := range page.caddyfile {
			if out, err := validate(t, dir, file); err != nil {
				t.Errorf("%v\n%s\n%s", err, file, out)
			}
		}
	})
}

// TestValidate: caddy validate says in one sentence what is wrong in a Caddyfile, and where.
func TestValidate(t *testing.T) {
	t.Parallel()
	dir := build(t)
	out, err := validate(t, dir, "http://localhost:8080 {\n\tlimits {\n\t\tlimit api 100\n\t}\n}\n")
	const want = `limits: limit api: max: ratelimit: invalid limit: "100" is not of the form ` +
		"MAX/WINDOW, such as 10/1m, at Caddyfile:3"
	if err == nil || !strings.Contains(strings.ReplaceAll(out, `\"`, `"`), want) {
		t.Errorf("got %v and\n%s", err, out)
	}
	if out, err := validate(t, dir, "http://localhost:8080 {\n\tlimits {\n\t\tstore "+
		"postgres://localhost/limits\n\t\tlimit api 100/1m\n\t}\n}\n"); err != nil {
		t.Errorf("PostgreSQL is not there: %v\n%s", err, out)
	}
}

func validate(t *testing.T, caddy, file string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return shell(dir, filepath.Join(caddy, "caddy")+" validate")
}
