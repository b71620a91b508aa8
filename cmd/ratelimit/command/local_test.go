package command

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestLocally: local decisions apply to decisions, to settlements of what was held locally and to
// blocks, not to resets.
func TestLocally(t *testing.T) {
	url, _, _ := start(t, "--store=redis://"+unusedAddr(t), "--on-failure=local",
		"--instances=2", "--limit=tokens=100/1h", "--in-flight=calls=4/1h", "--block=blocked=1h")
	status, body := post(t, url+"/v1/decide", apitest.Hold("tokens 30, calls, blocked"))
	var answer struct{ ID, Source string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK ||
		answer.Source != "local" {
		t.Fatalf("%d %s", status, body)
	}
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/decide", apitest.Of("tokens 21"), 429, `"source":"local","limit":50,"remaining":20,`},
		{"/v1/renew", apitest.ID(1, `"total":50`), 200, `"id"`},
		{"/v1/decide", apitest.Of("tokens"), 429, `"source":"local","limit":50,"remaining":0,`},
		{"/v1/settle", apitest.ID(1, `"used":10`), 204, ""},
		{"/v1/settle", apitest.ID(1), 503, "#ErrUnavailable"},
		{"/v1/decide", apitest.Of("tokens 41"), 429, `"source":"local","limit":50,"remaining":40,`},
		{"/v1/block", apitest.One("blocked", `"for_ms":1800000`), 200,
			`{"name":"blocked","source":"local","reset_after_ms":1800000}`},
		{"/v1/reset", apitest.One("blocked", ""), 503, "#ErrUnavailable"},
		{"/v1/decide", apitest.Of("tokens, blocked"), 429, `{"name":"blocked"`},
	} {
		body := strings.ReplaceAll(step.body, "$1", answer.ID)
		if status, body := post(t, url+step.path, body); status != step.status ||
			!strings.Contains(body, step.want) {
			t.Errorf("%s: %d %s", step.path, status, body)
		}
	}
}
