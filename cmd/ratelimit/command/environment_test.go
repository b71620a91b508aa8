package command

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// TestEnvironment: a variable that is no setting ends the start, unless a container platform has
// set it. An empty one is as if it were not there.
func TestEnvironment(t *testing.T) {
	for name, tt := range map[string]struct{ value, want string }{
		"RATELIMIT_ONFAILURE":              {"closed", "RATELIMIT_ONFAILURE"},
		"RATELIMIT_SERVICE_HOST":           {"10.0.0.7", ""},
		"RATELIMIT_SERVICE_PORT":           {"8080", ""},
		"RATELIMIT_SERVICE_PORT_HTTP":      {"8080", ""},
		"RATELIMIT_PORT":                   {"tcp://10.0.0.7:8080", ""},
		"RATELIMIT_PORT_8080_TCP":          {"tcp://10.0.0.7:8080", ""},
		"RATELIMIT_PORT_8080_TCP_ADDR":     {"10.0.0.7", ""},
		"RATELIMIT_REDIS_PORT_6379_TCP":    {"tcp://10.0.0.8:6379", ""},
		"RATELIMIT_REDIS_SERVICE_HOST":     {"10.0.0.8", ""},
		"RATELIMIT_ADMIN_PORT":             {"8081", "RATELIMIT_ADMIN_PORT"},
		"RATELIMIT_UNKNOWN":                {"", ""},
		"RATELIMIT_TOP_KEYS":               {"", ""},
		"RATELIMIT_BREAKER_PAUSE":          {"", ""},
		"RATELIMIT_LOG_FORMAT":             {"", ""},
		"RATELIMIT_TOP_KEYS_PLAIN":         {"", ""},
		"RATELIMIT_LIMIT":                  {"", ""},
		"RATELIMIT_NEW_KEY":                {"x", "RATELIMIT_NEW_KEY"},
		"OTHER_UNKNOWN":                    {"x", ""},
		"RATELIMIT_PORT_8080_TCP_ADDRESS":  {"x", "RATELIMIT_PORT_8080_TCP_ADDRESS"},
		"RATELIMIT_SERVICE_HOSTNAME":       {"x", "RATELIMIT_SERVICE_HOSTNAME"},
		"RATELIMIT_QUOTA_SERVICE_PORT_TLS": {"8443", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, tt.value)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // it ends as soon as it has started
			var stderr bytes.Buffer
			code := run(ctx, []string{"serve", "--addr=127.0.0.1:0"}, io.Discard, &stderr)
			want := exitOK
			if tt.want != "" {
				want = exitUsage
			}
			if code != want || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("%s=%q: exit code %d, want %d: %s", name, tt.value, code, want, &stderr)
			}
		})
	}
	t.Setenv("RATELIMIT_ONFAILURE", "closed")
	for _, args := range [][]string{{"serve", "--help"}, {"--version"}} {
		if code := run(t.Context(), args, io.Discard, io.Discard); code != exitOK {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
