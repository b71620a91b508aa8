package command

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// A traced is a line of the log about a write or a refusal.
type traced struct {
	Msg, Level, Action, From, Outcome, For, Path string

	Actor, Door        string
	Status, Suppressed int
	Units              int64
	Limits             []string
	Hashes             []string `json:"key_hashes"`
}

// tracedLines returns the lines of a log that have a message.
func tracedLines(t *testing.T, log, msg string) (lines []traced) {
	t.Helper()
	for text := range strings.Lines(log) {
		if !strings.Contains(text, fmt.Sprintf(`"msg":%q`, msg)) {
			continue
		}
		var line traced
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// checkSecrets reports keys, tokens and ids in a log.
func checkSecrets(t *testing.T, log string, secrets ...string) {
	t.Helper()
	for _, text := range append(secrets, apitest.Secret, apitest.Token) {
		if strings.Contains(log, text) {
			t.Errorf("the log has %q: %s", text, log)
		}
	}
}

// TestWritesLeaveALine: each write, done or not, leaves a line with its limits and the hash of the
// key that the list of the most refused keys has.
func TestWritesLeaveALine(t *testing.T) {
	base, log, _ := start(t, "--limit=tokens=2/1h", "--limit=day=9/24h", "--in-flight=calls=1/1h",
		"--block=blocked=1h", "--top-keys=5")
	var held, refused struct {
		ID     string
		Limits []struct {
			Keys []struct {
				Hash string `json:"key_hash"`
			}
		}
	}
	do := func(path, body string, want int) string {
		t.Helper()
		status, answer := post(t, base+path, body)
		if status != want {
			t.Fatalf("%s %s: %d %s", path, body, status, answer)
		}
		return answer
	}
	if err := json.Unmarshal([]byte(do("/v1/decide", `{"claims":[
		{"limit":"tokens","key":"secret-key","n":2},{"limit":"calls","key":"secret-key"}],
		"hold_ms":0}`, 200)), &held); err != nil {
		t.Fatal(err)
	}
	do("/v1/decide", apitest.Of("tokens"), 429)
	_, top := get(t, base+"/v1/top-keys")
	if err := json.Unmarshal([]byte(top), &refused); err != nil {
		t.Fatal(err)
	}
	hash := refused.Limits[0].Keys[0].Hash
	do("/v1/force", apitest.One("tokens", `"n":7`), 200)
	do("/v1/force", apitest.One("unknown", `"n":7`), 422) // changes nothing
	do("/v1/block", apitest.One("blocked", `"for_ms":90000`), 200)
	do("/v1/reset", apitest.One("blocked", ""), 204)
	do("/v1/reset", `{"key":"secret-key"}`, 204)
	do("/v1/settle", fmt.Sprintf(`{"id":%q,"used":0}`, held.ID), 204)

	lines := tracedLines(t, log.String(), "write")
	want := []traced{
		{Action: "force", Units: 7, Limits: []string{"tokens"}},
		{Action: "block", For: "1m30s", Limits: []string{"blocked"}},
		{Action: "reset", Limits: []string{"blocked"}},
		{Action: "reset", Limits: []string{"tokens", "day"}},
		{Action: "release", Limits: []string{"tokens", "calls"}},
	}
	for i, line := range lines {
		if _, _, err := net.SplitHostPort(line.From); err != nil {
			t.Errorf("it comes from %q", line.From)
		}
		if !slices.Equal(line.Hashes, []string{hash}) || hash == "" || line.Outcome != "done" ||
			line.Level != "INFO" {
			t.Errorf("%+v, want the hash %s", line, hash)
		}
		lines[i].From, lines[i].Hashes, lines[i].Outcome = "", nil, ""
		lines[i].Msg, lines[i].Level = "", ""
		lines[i].Actor, lines[i].Door, lines[i].Path, lines[i].Status = "", "", "", 0
	}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("got\n%+v, want\n%+v", lines, want)
	}
	checkSecrets(t, log.String(), held.ID)

	base, log, _ = start(t, "--on-failure=closed", "--limit=tokens=2/1h",
		"--store=redis://"+unusedAddr(t))
	do("/v1/force", apitest.One("tokens", `"n":7`), 503)
	lines = tracedLines(t, log.String(), "write")
	if len(lines) != 1 || lines[0].Outcome == "done" || lines[0].Outcome == "" ||
		len(lines[0].Hashes) != 1 {
		t.Errorf("of a write that failed: %+v", lines)
	}
	checkSecrets(t, log.String())
}

// TestPageLeavesAHash: an action on the page leaves the hash of the key without a list of keys too.
func TestPageLeavesAHash(t *testing.T) {
	base, log, _ := start(t, "--limit=tokens=2/1h")
	res, err := http.Get(base + "/dashboard/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.RawURLEncoding.EncodeToString([]byte(apitest.Secret))
	form := url.Values{"token": {pageToken.FindStringSubmatch(string(text))[1]},
		"action": {"reset"}, "limit": {"tokens"}, "key": {encoded}, "query": {encoded},
		"confirmed": {"yes"}}
	if res, text := visit(t, http.MethodPost, base+"/dashboard/act", apitest.Token, form); res.
		StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	post(t, base+"/v1/reset", `{"key":"secret-key"}`)
	lines := tracedLines(t, log.String(), "write")
	if len(lines) != 2 || lines[0].Door != "page" || lines[1].Door != "api" ||
		fmt.Sprint(lines[0].Hashes) != fmt.Sprint(lines[1].Hashes) {
		t.Errorf("no such hash of the page: %s", log)
	}
	checkSecrets(t, log.String())
}

// TestRefusalsOfCredentials: the log has what a request without a right wanted, once a second.
func TestRefusalsOfCredentials(t *testing.T) {
	const reader = "a-token-to-read-with"
	key := base64.RawURLEncoding.EncodeToString([]byte(apitest.Secret))
	hashed := []string{"any"}
	for _, tt := range []struct {
		path, token, body string
		want              traced
	}{
		{"/v1/force", "", apitest.One("tokens", `"n":7`),
			traced{Status: 401, Path: "/v1/force", Action: "force", Limits: []string{"tokens"},
				Hashes: hashed}},
		{"/v1/block", "another-token-of-nobody", apitest.One("tokens", `"for_ms":7`),
			traced{Status: 401, Path: "/v1/block", Action: "block", Actor: "unknown",
				Limits: []string{"tokens"}, Hashes: hashed}},
		{"/v1/reset", reader, apitest.One("unknown", ""),
			traced{Status: 403, Path: "/v1/reset", Action: "reset", Actor: "token",
				Limits: []string{}, Hashes: hashed}},
		{"/v1/reset", "", `{"key":`,
			traced{Status: 401, Path: "/v1/reset", Action: "reset", Limits: []string{}}},
		{"/v1/reset", "", strings.Repeat("a", httpapi.MaxBody+1),
			traced{Status: 401, Path: "/v1/reset", Action: "reset", Limits: []string{}}},
		{"/metrics", "", "",
			traced{Status: 401, Path: "/metrics", Action: "read", Limits: []string{}}},
		{"/v1/explain", "", `{"descriptor":{"key":"secret-key"}}`,
			traced{Status: 401, Path: "/v1/explain", Action: "read", Limits: []string{}}},
		{"/dashboard/secret-key/act", "", "limit=tokens&key=" + key,
			traced{Status: 401, Path: "/dashboard/", Action: "write", Limits: []string{"tokens"},
				Hashes: hashed}},
	} {
		base, log, _ := start(t, "--limit=tokens=2/1h",
			"--read-token-file="+apitest.TokenFile(t, reader))
		req, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, base+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		lines := tracedLines(t, log.String(), "request refused: it has no right")
		if res.StatusCode != tt.want.Status || len(lines) != 1 {
			t.Errorf("%s: %d, %d lines: %s", tt.path, res.StatusCode, len(lines), log)
			continue
		}
		line := lines[0]
		if len(line.Hashes) != len(tt.want.Hashes) || slices.Contains(line.Hashes, "") {
			t.Errorf("%s: hashes %q", tt.path, line.Hashes)
		}
		if !strings.HasPrefix(line.From, "127.0.0.1:") || line.Level != "WARN" {
			t.Errorf("%s: %+v", tt.path, line)
		}
		if tt.want.Actor == "" {
			tt.want.Actor = "anyone"
		}
		tt.want.Door, tt.want.Outcome = line.Door, "refused"
		line.From, line.Msg, line.Level, line.Hashes = "", "", "", tt.want.Hashes
		if fmt.Sprintf("%+v", line) != fmt.Sprintf("%+v", tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.path, line, tt.want)
		}
		checkSecrets(t, log.String(), "another-token", reader)
	}
	// Without tokens nobody may write.
	base, log, _ := start(t, "--limit=tokens=2/1h", "--write-token-file=")
	post(t, base+"/v1/reset", apitest.One("tokens", ""))
	if lines := tracedLines(t, log.String(),
		"request refused: it has no right"); len(lines) != 1 || lines[0].Status != 403 {
		t.Errorf("without tokens: %s", log)
	}
}
