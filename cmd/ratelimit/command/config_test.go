package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestWarningOfALimit: each load logs once what a limit of the file does not do.
func TestWarningOfALimit(t *testing.T) {
	file := apitest.ConfigFile(t,
		"limits:\n  - {name: calls, key: [a], algorithm: in-flight, max: 3}\n")
	url, log, stop := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0")
	for path, want := range map[string]int{"/v1/check": http.StatusOK, "/json": http.StatusOK,
		"/v1/decide": http.StatusUnprocessableEntity} {
		body := `{"descriptor":{"a":"x"}}`
		if path == "/json" {
			body = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"x"}]}]}`
		}
		if status, answer := post(t, url+path, body); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
	stop()
	if got := log.String(); strings.Count(got, `"level":"WARN"`) != 1 ||
		!strings.Contains(got, file+":2:5") || !strings.Contains(got, "/v1/check") {
		t.Errorf("log %s, want one warning", got)
	}
}

// TestWarningOfNoShare: each load logs which limits of the file have no local share.
func TestWarningOfNoShare(t *testing.T) {
	const limit = "limits:\n  - {name: few, key: [a], max: %d/1h}\n"
	file := apitest.ConfigFile(t, fmt.Sprintf(limit, 3))
	_, log, stop := start(t, "--config="+file, "--store=redis://"+unusedAddr(t),
		"--on-failure=local", "--instances=4")
	warning := file + `:2:5","warning":"none of 4 instances has a share of \"few\"`
	if n := strings.Count(log.String(), warning); n != 1 {
		t.Errorf("%d warnings at the start, want 1: %s", n, log)
	}
	for i, units := range []int{4, 2} {
		apitest.WriteFile(t, file, fmt.Sprintf(limit, units))
		for strings.Count(log.String(), "the configuration is loaded") != i+2 {
			runtime.Gosched()
		}
		if n := strings.Count(log.String(), warning); n != 1+i {
			t.Errorf("%d warnings with %d units, want %d: %s", n, units, 1+i, log)
		}
	}
	stop()
}

// TestLocalNeedsInstances: a file that says local, and nothing says how many processes there are,
// is an error at the position of local.
func TestLocalNeedsInstances(t *testing.T) {
	file := apitest.ConfigFile(t, "store: redis://localhost\non_failure: local\nlimits: []\n")
	code, _, stderr := command(t, "serve", "--config="+file)
	if code != exitUsage || !strings.Contains(stderr, file+":2:13: ") ||
		!strings.Contains(stderr, "needs --instances=N") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeConfig serves the limits of a file.
func TestServeConfig(t *testing.T) {
	file := apitest.ConfigFile(t, "limits: [{name: units, key: [tenant], max: 2/1h}]\n")
	url, log, stop := start(t, "--config="+file)
	body := `{"descriptor":{"tenant":"acme"},"n":2}`
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status, answer := post(t, url+"/v1/decide", body); status != want {
			t.Errorf("%d %s, want %d", status, answer, want)
		}
	}
	if code := stop(); code != exitOK || !strings.Contains(log.String(), "1 of "+file) {
		t.Errorf("code %d, log %s", code, log)
	}
}

func TestConfigRefused(t *testing.T) {
	good := apitest.ConfigFile(t, "limits: [{name: units, key: [tenant], max: 2/1h}]\n")
	remote := apitest.ConfigFile(t, "store: redis://localhost\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", good, "--limit=10/1m"}, "leave out --limit"},
		{[]string{"--config", good + "x"}, "no such file"},
		{[]string{"--config", apitest.ConfigFile(t, "limits: [{name: a, max: many}]")},
			"limits.yaml:1:"},
		{[]string{"--config", remote}, "--on-failure"},
	} {
		var stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		code := run(ctx, append([]string{"serve"}, tt.args...), io.Discard, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%v: code %d, %q, want %q", tt.args, code, &stderr, tt.want)
		}
	}
}

// TestReloadSaysWhatCountsFromZero: a load that gives limits another history says so in one line of
// the log, in a metric and on the page.
func TestReloadSaysWhatCountsFromZero(t *testing.T) {
	const limit = "  - {name: units%d, key: [tenant], max: 9/1h%s}\n"
	limits := func(n int, more string) string {
		text := "limits:\n"
		for i := range n {
			text += fmt.Sprintf(limit, i, more)
		}
		return text
	}
	file := apitest.ConfigFile(t, limits(12, ""))
	url, log, _ := start(t, "--config="+file)
	loads := 1
	write := func(text string) string {
		t.Helper()
		before := len(log.String())
		apitest.WriteFile(t, file, text)
		for loads++; strings.Count(log.String(), "the configuration is loaded") != loads+1; {
			runtime.Gosched() // one of them is that of the tokens
		}
		return log.String()[before:]
	}
	if got := write(limits(12, ", warn: 80%")); strings.Contains(got, "WARN") {
		t.Errorf("nothing counts from zero, and the log has %s", got)
	}
	got := write(limits(12, ", holds: 1m"))
	if strings.Count(got, `"level":"WARN"`) != 1 || !strings.Contains(got, `"count":12`) ||
		!strings.Contains(got, `\"units9\" counts from zero: it has holds`) ||
		strings.Contains(got, "units10") {
		t.Errorf("the log has %s", got)
	}
	apitest.WantSeries(t, apitest.Scrape(t, url),
		map[string]string{"ratelimit_config_restarted_total": "12"})
	if _, page := get(t, url+"/dashboard/snapshot"); !strings.Contains(page, "counts lost") ||
		!strings.Contains(page, "units0") || !strings.Contains(page, "11 more") {
		t.Errorf("the page has %s", page)
	}
	if got := write(limits(12, ", holds: 2m")); strings.Contains(got, "WARN") {
		t.Errorf("nothing counts from zero, and the log has %s", got)
	}
	apitest.WantSeries(t, apitest.Scrape(t, url),
		map[string]string{"ratelimit_config_restarted_total": "12"})
}

// TestReloadWithoutLimits: a file that has no limits any more is loaded with a warning, and the
// metric of the alert says so.
func TestReloadWithoutLimits(t *testing.T) {
	file := apitest.ConfigFile(t, "limits: [{name: a, max: 1/1h}]\n")
	url, log, _ := start(t, "--config="+file)
	for i, text := range []string{"limits: []\n", "store: memory\n", "{}\n", "domain: d\n",
		"domain: d\ndescriptors: []\n", "domain: d\ndescriptors: [{key: a}]\n",
		"# no limits any more\nlimits: []\n"} {
		apitest.WriteFile(t, file, text)
		for strings.Count(log.String(), "the configuration is loaded") != i+3 {
			runtime.Gosched()
		}
		if n := strings.Count(log.String(), "every request is admitted"); n != i+1 {
			t.Errorf("%q: %d warnings, want %d", text, n, i+1)
		}
		apitest.WantSeries(t, apitest.Scrape(t, url),
			map[string]string{"ratelimit_config_limits": "0"})
	}
}
