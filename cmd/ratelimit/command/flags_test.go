package command

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestFlags: errors in the flags of limits.
func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--limit=a=1/1m", "--in-flight=a=1/1m"}, exitError, `"a" is taken`},
		{[]string{"--limit=10/1m", "--in-flight=5/1m"}, exitError, `"1m0s" is taken`},
		{[]string{"--in-flight=a=1/1m,a=2/1h"}, exitError, `"a" is taken`},
		{[]string{"--limit=a=1/1m", "--block=a=1m"}, exitError, `"a" is taken`},
		{[]string{"--in-flight=a=1/300d"}, exitError, "time-out"},
		{[]string{"--in-flight=5"}, exitUsage, "MAX/WINDOW"},
		{[]string{"--block=24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block==24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block=a=1/24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block=a=400d"}, exitUsage, "Window"},
		{[]string{"--block=a b=1h"}, exitUsage, "NAME=LONGEST"},
	} {
		var stderr bytes.Buffer
		args := append([]string{"serve", "--addr=no address"}, tt.args...)
		if code := run(t.Context(), args, io.Discard, &stderr); code != tt.code ||
			!strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%v: exit code %d: %s", tt.args, code, &stderr)
		}
	}
}

// TestServeKinds starts the command with limits of each kind, from flags and the environment.
func TestServeKinds(t *testing.T) {
	t.Setenv("RATELIMIT_IN_FLIGHT", "calls=1/1h")
	t.Setenv("RATELIMIT_BLOCK", "x=y=1d,blocked=24h")
	url, log, _ := start(t, "--limit=tokens=10/1h,5/1h30m")
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/decide", apitest.Of("tokens 10, 1h30m0s 5, x=y, blocked"), 200, `"name":"tokens"`},
		{"/v1/block", apitest.One("x=y", `"for_ms":86400000`), 200, `"reset_after_ms":86400000`},
		{"/v1/decide", apitest.Hold("calls"), 200, `{"id":"`},
		{"/v1/decide", apitest.Hold("calls, tokens, x=y"), 429, `{"name":"x=y"`},
		{"/v1/nothing", `{}`, 404, strings.Join(httpapi.Paths(), ", ")},
	} {
		if status, body := post(t, url+step.path, step.body); status != step.status ||
			!strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s", step.path, step.body, status, body)
		}
	}
	if got := log.String(); !strings.Contains(got, `"in-flight":"[calls=1/1h0m0s]"`) ||
		!strings.Contains(got, `"blocks":"[x=y=24h0m0s blocked=24h0m0s]"`) ||
		strings.Contains(got, apitest.Secret) {
		t.Errorf("log: %s", got)
	}
}
