package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestRetryAfterOfFailures: each 503 says when to try again, and no other status does.
func TestRetryAfterOfFailures(t *testing.T) {
	healthy, _, _ := start(t, "--limit=tokens=9/1h")
	for _, path := range []string{"/readyz", "/nothing"} {
		res, err := http.Get(healthy + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Retry-After"); got != "" {
			t.Errorf("%s: %d, Retry-After %q", path, res.StatusCode, got)
		}
	}
	_, answer := post(t, healthy+"/v1/decide", apitest.Hold("tokens"))
	var held struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &held); err != nil {
		t.Fatal(err)
	}
	for pause, want := range map[string]string{"500ms": "1", "2500ms": "3"} {
		base, _, _ := start(t, "--limit=tokens=9/1h", "--on-failure=closed", "--block=blocked=1h",
			"--breaker-pause="+pause, "--entry=key=client", "--store=redis://"+unusedAddr(t))
		for _, tt := range []struct{ path, body string }{
			{"/v1/decide", apitest.Of("tokens")}, {"/v1/decide", `{"descriptor":{"key":"a"}}`},
			{"/v1/decide", apitest.Hold("tokens")}, {"/v1/peek", apitest.Of("tokens")},
			{"/v1/settle", fmt.Sprintf(`{"id":%q}`, held.ID)},
			{"/v1/renew", fmt.Sprintf(`{"id":%q}`, held.ID)},
			{"/v1/force", apitest.One("tokens", `"n":1`)},
			{"/v1/block", apitest.One("blocked", `"for_ms":1`)},
			{"/v1/reset", apitest.One("tokens", "")}, {"/v1/check", ""}, {"/readyz", ""},
		} {
			method := http.MethodPost
			if tt.body == "" {
				method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(
				t.Context(), method, base+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+apitest.Token)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if got := res.Header.Get("Retry-After"); got != want ||
				res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %d, Retry-After %q, want %s", tt.path, res.StatusCode, got, want)
			}
		}
	}
}

// TestRetryJitter: with the flag, refused clients and proxies are told different times, none
// shorter than the wait; all else says the wait.
func TestRetryJitter(t *testing.T) {
	for share, longest := range map[string]int{"0": 3600, "0.5": 5400} {
		base, _, _ := start(t, "--limit=hour=1/1h", "--entry=key=client", "--retry-jitter="+share)
		away, _, _ := start(t, "--limit=hour=1/1h", "--on-failure=closed", "--retry-jitter="+share,
			"--breaker-pause=1h", "--store=redis://"+unusedAddr(t))
		for _, tt := range []struct {
			method, url string
			status      int
			exact       string // is in the answer
		}{
			{http.MethodPost, base + "/v1/decide", 429, `"retry_after_ms":3`},
			{http.MethodGet, base + "/v1/check", 429, `"retry_after_ms":3`},
			{http.MethodPost, away + "/v1/decide", 503, ""},
		} {
			told := make(map[int]bool)
			for i := range 21 {
				req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url,
					strings.NewReader(`{"key":"127.0.0.1"}`))
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if i == 0 && res.StatusCode == http.StatusOK { // the unit of the hour
					continue
				}
				var seconds int
				_, _ = fmt.Sscan(res.Header.Get("Retry-After"), &seconds)
				if res.StatusCode != tt.status || seconds < 3500 || seconds > longest ||
					!strings.Contains(string(body), tt.exact) {
					t.Errorf("%s: %d %v %s", tt.url, res.StatusCode, res.Header, body)
				}
				told[seconds] = true
			}
			// Without jitter a second may end during the test.
			if (len(told) > 5) != (share != "0") {
				t.Errorf("%s with %s: told %v", tt.url, share, told)
			}
		}
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"serve", "--retry-jitter=1.5"}, io.Discard,
		&stderr); code != exitUsage || !strings.Contains(stderr.String(), "--retry-jitter=1.5 is") {
		t.Errorf("%d %s", code, &stderr)
	}
}
