package command

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestForwardLacksPath counts and logs requests that lack the path that a limit needs.
func TestForwardLacksPath(t *testing.T) {
	url, log, _ := start(t, "--config="+apitest.ConfigFile(t,
		"limits: [{name: login, when: {path: /login}, max: 1/1h}]"), "--forward-auth=ingress-nginx")
	for i, want := range []int{200, 429, 429} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/check", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Original-URL", "https://app.example/login")
		r.Header.Set("X-Original-Method", "GET")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, res.StatusCode, want)
		}
	}
	if status, body := get(t, url+"/v1/check"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		`ratelimit_forward_auth_missing_total entry="path"`:   "1",
		`ratelimit_forward_auth_missing_total entry="client"`: "0",
		`ratelimit_forward_auth_trusted_clients_total`:        "0",
	})
	if !strings.Contains(log.String(), `"header":"X-Original-URL"`) {
		t.Errorf("%s", log)
	}
}

// TestForwardEnvoy: below /v1/check Envoy is answered under the host of its client, and the metrics
// have one path for all.
func TestForwardEnvoy(t *testing.T) {
	url, _, _ := start(t, "--config="+apitest.ConfigFile(t,
		"limits: [{name: login, when: {path: /login, host: app.example, method: PUT}, max: 1/1h}]"),
		"--forward-auth=envoy", "--host=limits")
	for i, want := range []int{200, 429, 429} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			url+"/v1/check/login?refused=403", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "app.example"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, res.StatusCode, want)
		}
	}
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		`ratelimit_forward_auth_missing_total entry="path"`: "0",
	})
	if metrics := apitest.Scrape(t, url); strings.Contains(fmt.Sprint(metrics), "/login") {
		t.Error("the metrics have the path of a client")
	}
}

// TestTrustedProxyWarning: the log warns once at the start of a network that clients may be in.
func TestTrustedProxyWarning(t *testing.T) {
	_, log, _ := start(t, "--trusted-proxy=10.0.0.2/32,10.0.0.0/8")
	if n := strings.Count(log.String(), "is a private network"); n != 1 ||
		!strings.Contains(log.String(), `"prefix":"10.0.0.0/8"`) {
		t.Errorf("%d warnings: %s", n, log)
	}
}

// TestForwardAuthFlag: another proxy than those that are known is an error.
func TestForwardAuthFlag(t *testing.T) {
	log := new(apitest.Log)
	code := run(t.Context(), []string{"serve", "--forward-auth=apache"}, log, log)
	want := fmt.Sprintf("%q is not one of caddy, envoy, haproxy, ingress-nginx, nginx, traefik",
		"apache")
	if code != exitUsage || !strings.Contains(log.String(), want) {
		t.Errorf("%d %s", code, log)
	}
}
