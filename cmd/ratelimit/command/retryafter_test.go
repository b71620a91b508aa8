package command

import (
	"encoding/json"
	"fmt"
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
