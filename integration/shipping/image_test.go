package shipping

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestImage: the image is small, its program knows its version, and it serves, configured by flags
// and the environment, without rights: as an ordinary user, on a file system that cannot be
// written. It answers soon, says that it is healthy, and stops at SIGTERM.
func TestImage(t *testing.T) {
	build(t)
	servers.CountTest(t, image)
	checkSize(t)
	want := fmt.Sprintf("%s commit %s", version, commit)
	got := docker(t, "run", "--rm", "--entrypoint=/ratelimit", image, "--version")
	if got != want {
		t.Errorf("the version: got %q, want %q", got, want)
	}

	began := time.Now()
	id := docker(t, "run", "--detach", "--label="+servers.Label, "--read-only", "--cap-drop=ALL",
		"--security-opt=no-new-privileges:true", "--env=RATELIMIT_LOG_FORMAT=json",
		"--health-interval=1s", image, "--limit=2/1m")
	t.Cleanup(func() { docker(t, "rm", "--force", id) })
	url := "http://" + addressOf(t, id) + ":8080"
	await(t, url+"/readyz")
	servers.Measured("the service answers %d ms after docker run, listens %d ms after its start",
		time.Since(began).Milliseconds(), untilListening(t, id).Milliseconds())
	servers.Within(t, func() bool {
		return docker(t, "inspect", "--format={{.State.Health.Status}}", id) == "healthy"
	}, "the container is healthy")
	if got := docker(t, "exec", id, "/ratelimit", "ready"); got != "ready" {
		t.Errorf("ratelimit ready: got %q", got)
	}
	servers.Within(t, func() bool { // not while the probe runs
		uids := docker(t, "top", id, "-eo", "uid,pid")
		return strings.Contains(uids, "65532") && strings.Count(uids, "\n") == 1
	}, "one process of the user 65532 runs")
	for i, want := range []int{200, 200, 429} {
		if got := decide(t, url, `{"key":"ann"}`); got != want {
			t.Errorf("request %d: status %d, want %d", i, got, want)
		}
	}

	docker(t, "stop", "--time=20", id)
	if code := docker(t, "inspect", "--format={{.State.ExitCode}}", id); code != "0" {
		t.Errorf("after SIGTERM the exit code is %s\n%s", code, docker(t, "logs", id))
	}
}

// TestImageKeepsLimits: limits in a file on a volume outlive a container that is killed.
func TestImageKeepsLimits(t *testing.T) {
	build(t)
	servers.CountTest(t, image)
	volume := docker(t, "volume", "create", "--label="+servers.Label)
	t.Cleanup(func() { docker(t, "volume", "rm", volume) })
	for _, want := range []int{200, 200, 429} {
		id := docker(t, "run", "--detach", "--label="+servers.Label, "--read-only",
			"--cap-drop=ALL", "--volume="+volume+":/var/lib/ratelimit", image, "--limit=2/1h",
			"--store=sqlite:/var/lib/ratelimit/limits.db", "--on-failure=closed")
		t.Cleanup(func() { docker(t, "rm", "--force", id) })
		url := "http://" + addressOf(t, id) + ":8080"
		await(t, url+"/readyz")
		if got := decide(t, url, `{"key":"ann"}`); got != want {
			t.Errorf("status %d, want %d\n%s", got, want, docker(t, "logs", id))
		}
		docker(t, "kill", id)
	}
}

// untilListening returns the time from the start of a container until its service listens.
func untilListening(t *testing.T, id string) time.Duration {
	t.Helper()
	started, err := time.Parse(time.RFC3339Nano,
		docker(t, "inspect", "--format={{.State.StartedAt}}", id))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := exec.Command("docker", "logs", id).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(logs) {
		var entry struct {
			Time time.Time
			Msg  string
		}
		if err := json.Unmarshal(line, &entry); err == nil && entry.Msg == "listening" {
			return entry.Time.Sub(started)
		}
	}
	t.Fatalf("the service did not listen:\n%s", logs)
	return 0
}

// checkSize fails if the image is large to pull. Registries keep and send images compressed.
func checkSize(t *testing.T) {
	t.Helper()
	const largest = 30e6
	size, err := strconv.Atoi(docker(t, "image", "inspect", "--format={{.Size}}", image))
	if err != nil {
		t.Fatal(err)
	}
	save := exec.Command("docker", "save", image)
	archive, err := save.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := save.Start(); err != nil {
		t.Fatal(err)
	}
	var compressed counter
	w := gzip.NewWriter(&compressed)
	if _, err := io.Copy(w, archive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := save.Wait(); err != nil {
		t.Fatal(err)
	}
	servers.Measured("the image has %.1f MB, compressed %.1f MB",
		float64(size)/1e6, float64(compressed)/1e6)
	if compressed > largest {
		t.Errorf("the compressed image has %d bytes, more than %.0f", compressed, largest)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// await returns when a URL answers with 200.
func await(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	servers.Within(t, func() bool {
		res, err := client.Get(url)
		if err != nil {
			return false
		}
		return res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}, url+" answers")
}

// decide returns the status of the answer to a request for a decision.
func decide(t *testing.T, url, body string) int {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(url+"/v1/decide", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}
