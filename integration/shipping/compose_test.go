package shipping

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

const valkey = "valkey/valkey:9"

// TestCompose: the command on the page starts the service with Valkey, and ends with a refusal.
// What was admitted survives a crash of the server.
func TestCompose(t *testing.T) {
	command, err := composeCommand()
	if err != nil {
		servers.Need(t, err.Error())
	}
	build(t)
	servers.NeedImage(t, valkey)
	servers.CountTest(t, valkey)
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	shell := func(script string) (string, error) {
		cmd := exec.Command("sh", "-eu", "-c", strings.NewReplacer(
			"docker compose", command, "localhost:8080", fmt.Sprintf("localhost:%d", port),
		).Replace(script))
		cmd.Dir = servers.Module
		cmd.Env = append(os.Environ(), "IMAGE="+image, fmt.Sprintf("PORT=%d", port),
			fmt.Sprintf("COMPOSE_PROJECT_NAME=ratelimit-%d", os.Getpid()))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, stderr.String())
		}
		return string(out), err
	}
	const compose = "docker compose -f deploy/compose.yaml "
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := shell(compose + "logs")
			t.Log(logs)
		}
		if _, err := shell(compose + "down --volumes --timeout 5"); err != nil {
			t.Error(err)
		}
	})
	out, err := shell(block(t, "docker compose"))
	if want := "200\n200\n200\n429\n"; err != nil || out != want {
		t.Fatalf("got %v\n%swant\n%s", err, out, want)
	}

	if _, err := shell(compose + "kill valkey && " + compose + "start valkey"); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	await(t, url+"/readyz")
	if got := decide(t, url, `{"descriptor":{"user":"ann"}}`); got != http.StatusTooManyRequests {
		t.Errorf("after a crash of the server: status %d, want 429", got)
	}
}

// composeCommand returns the command of Docker Compose, which is a plugin or a program.
func composeCommand() (string, error) {
	if exec.Command("docker", "compose", "version").Run() == nil {
		return "docker compose", nil
	}
	if _, err := exec.LookPath("docker-compose"); err == nil {
		return "docker-compose", nil
	}
	return "", errors.New("there is no Docker Compose")
}

// block returns the block of commands on the page that contains some text.
func block(t *testing.T, text string) string {
	t.Helper()
	return blockOf(t, "sh", text)
}

// blockOf is block for another language.
func blockOf(t *testing.T, language, text string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(servers.Module, "docs/deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").
		FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(b[1], text) {
			return b[1]
		}
	}
	t.Fatalf("docs/deploy.md has no block with %q", text)
	return ""
}
