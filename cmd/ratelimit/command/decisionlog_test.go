package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// loggedDecision is a line of --log-decisions.
type loggedDecision struct {
	Domain          string
	Allowed         bool
	Limits, Sources []string
	RefusedBy       []string `json:"refused_by"`
	Hashes          []string `json:"key_hashes"`
}

// loggedDecisions returns the lines of --log-decisions in a log.
func loggedDecisions(t *testing.T, log string) (lines []loggedDecision) {
	t.Helper()
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"msg":"decision"`) {
			continue
		}
		var d loggedDecision
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, d)
	}
	return lines
}

// TestDecisionLog: decisions of claims, descriptors, proxies and Envoy are logged, with hashes of
// keys as in the list of the most refused keys.
func TestDecisionLog(t *testing.T) {
	file := apitest.ConfigFile(t, "limits:\n  - {name: units, key: [tenant], max: 1/1h}\n"+
		"  - {name: paths, key: [path], max: 9/1h}\n"+
		"  - {name: tried, key: [plan], max: 0, mode: shadow}\n")
	url, log, stop := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0", "--top-keys=9",
		"--log-decisions=1")
	post(t, url+"/v1/decide",
		`{"descriptor":{"tenant":"`+apitest.Secret+`","path":"/`+apitest.Secret+`"}}`)
	post(t, url+"/v1/decide", apitest.Of("units"))
	post(t, url+"/v1/decide",
		`{"descriptor":{"tenant":"`+apitest.Secret+`","path":"/`+apitest.Secret+`","plan":"x"}}`)
	post(t, url+"/v1/decide", `{"descriptor":{"nothing":"`+apitest.Secret+`"}}`)
	shouldRateLimit(t, dialEnvoy(t, log), apitest.Secret)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/check", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-Uri", "/"+apitest.Secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	_, top := get(t, url+"/v1/top-keys")
	stop()
	if strings.Contains(log.String(), apitest.Secret) {
		t.Errorf("the log has the key: %s", log)
	}
	lines := loggedDecisions(t, log.String())
	if len(lines) != 6 {
		t.Fatalf("%d lines: %s", len(lines), log)
	}
	for i, want := range []loggedDecision{
		{Allowed: true, Limits: []string{"units", "paths"}},
		{Limits: []string{"units"}, RefusedBy: []string{"units"}},
		{Limits: []string{"units", "paths", "tried"}, RefusedBy: []string{"units"}},
		{Allowed: true},
		{Domain: "api", Limits: []string{"units"}, RefusedBy: []string{"units"}},
		{Allowed: true, Limits: []string{"paths"}},
	} {
		got := lines[i]
		if got.Domain != want.Domain || got.Allowed != want.Allowed ||
			!slices.Equal(got.Limits, want.Limits) ||
			!slices.Equal(got.RefusedBy, want.RefusedBy) || len(got.Hashes) != len(got.Limits) ||
			len(got.Sources) != len(got.Limits) {
			t.Errorf("line %d: %+v, want %+v", i, got, want)
		}
		for _, source := range got.Sources {
			if source != "store" && got.Limits[len(got.Limits)-1] != "tried" {
				t.Errorf("line %d: source %s", i, source)
			}
		}
	}
	hash := regexp.MustCompile(`"key_hash":"(\w+)"`).FindStringSubmatch(top)
	if hash == nil || lines[0].Hashes[0] != hash[1] || lines[1].Hashes[0] != hash[1] ||
		lines[0].Hashes[1] == hash[1] {
		t.Errorf("%+v, but the list has %s", lines[:2], top)
	}
}

// TestDecisionLogBounds: a share is between 0 and 1.
func TestDecisionLogBounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, share := range []string{"-0.1", "1.1", "NaN"} {
		var stderr bytes.Buffer
		code := run(ctx, []string{"serve", "--log-decisions=" + share}, io.Discard, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), "--log-decisions") {
			t.Errorf("%s: code %d, %s", share, code, &stderr)
		}
	}
}
