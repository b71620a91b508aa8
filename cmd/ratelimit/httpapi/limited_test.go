package httpapi

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const limitedLimits = `
limits:
  - {name: mine, when: {mine: "*"}, key: [mine], max: 5/1h, holds: 1m}
  - {name: theirs, when: {theirs: "*"}, key: [theirs], max: 5/1h, holds: 1m}
  - {name: blocks, when: {theirs: "*"}, key: [theirs], max: 1h, algorithm: block}
`

// limitedScene has the limits above, and a token of each right for mine only.
func limitedScene(t *testing.T, anyone string) *scene {
	t.Helper()
	s := newScene(t)
	top, err := NewTopKeys(5, true, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s.api = fileAPI(t, limitedLimits, s.store, decision.WithObserver(top.Observe))
	s.api.top = top
	f := access.NewFile(apitest.WriteFile(t, filepath.Join(t.TempDir(), "access.yaml"), anyone+`
tokens:
  - {name: ann, token: `+apitest.Token+`, may: [decide, settle, read, write], limits: [mine]}
`))
	if err := f.Read(); err != nil {
		t.Fatal(err)
	}
	s.access = NewAccess(&access.Table{File: f}, s.api.audit)
	return s
}

// as sends a request with a token, or without one if it is empty.
func (s *scene) as(token, method, path, body string) (status int, answer string) {
	s.Helper()
	r := request(method, path, body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	status, _, answer = call(s.T, s.access.Only(s.api), r)
	return status, answer
}

// heldOf returns the ID of a unit that a request holds.
func (s *scene) heldOf(limit string) string {
	s.Helper()
	_, answer := s.as("", http.MethodPost, "/v1/decide", hold(limit+" 1"))
	_, id, _ := strings.Cut(answer, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	if id == "" {
		s.Fatal(answer)
	}
	return id
}

// TestLimited: a token that is limited to limits gets 403 for others on each path, and sees nothing
// of them.
func TestLimited(t *testing.T) {
	s := limitedScene(t, "")
	for _, limit := range []string{"mine", "theirs"} {
		id := s.heldOf(limit)
		if limit == "theirs" { // no answer says what the limit has
			status, answer := s.as(apitest.Token, http.MethodPost, "/v1/renew",
				fmt.Sprintf(`{"id":%q,"total":500}`, id))
			if status != http.StatusForbidden {
				t.Errorf("more than theirs admits: %d %s", status, answer)
			}
		}
		for _, r := range [][2]string{
			{"/v1/decide", of(limit)},
			{"/v1/peek", fmt.Sprintf(`{"descriptor":{%q:"key"}}`, limit)},
			{"/v1/renew", fmt.Sprintf(`{"id":%q}`, id)},
			{"/v1/settle", fmt.Sprintf(`{"id":%q}`, id)},
			{"/v1/force", one(limit, `"n":1`)},
			{"/v1/reset", one(limit, "")},
			{"/v1/block", one("blocks", `"for_ms":1`)},
		} {
			path, body := r[0], r[1]
			want := limit == "mine" && path != "/v1/block"
			status, answer := s.as(apitest.Token, http.MethodPost, path, body)
			if (status < 300) != want || !want && status != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", path, limit, status, answer)
			}
		}
		s.as("", http.MethodPost, "/v1/decide",
			fmt.Sprintf(`{"descriptor":{%q:"key"},"n":9}`, limit))
	}
	both := `{"descriptors":[{"entries":{"mine":"x"}},{"entries":{"theirs":"x"}}]}`
	if status, answer := s.as(apitest.Token, http.MethodPost, "/v1/decide", both); status != 403 {
		t.Errorf("of both: %d %s", status, answer)
	}
	_, answer := s.as("", http.MethodPost, "/v1/peek", `{"descriptor":{"mine":"x"}}`)
	if !strings.Contains(answer, `"remaining":5`) {
		t.Errorf("a part was charged: %s", answer)
	}
	for _, r := range [][3]string{{http.MethodGet, "/v1/top-keys", ""},
		{http.MethodPost, "/v1/explain", `{"descriptor":{"mine":"a","theirs":"b"}}`}} {
		status, answer := s.as(apitest.Token, r[0], r[1], r[2])
		if status != http.StatusOK || !strings.Contains(answer, `"mine"`) ||
			strings.Contains(answer, "theirs") || strings.Contains(answer, "blocks") {
			t.Errorf("%s: %d %s", r[1], status, answer)
		}
	}
	if status, _ := s.as(apitest.Token, http.MethodGet, "/metrics", ""); status != 403 {
		t.Errorf("the metrics, which are of all limits: %d", status)
	}
}

// TestNotAnyone: a file may keep everyone without a credential from deciding; what says whether the
// service works needs none. What a proxy asks about has the token of somebody else.
func TestNotAnyone(t *testing.T) {
	s := limitedScene(t, "anyone: []")
	for path, want := range map[string][2]int{
		"/v1/decide": {401, 400}, "/v1/settle": {401, 400}, "/v1/top-keys": {401, 405},
		"/v1/check": {401, 401}, "/v1/check/x": {401, 401}, "/json": {401, 404},
		"/healthz": {405, 405}, "/readyz": {405, 405},
		"/v1/openapi.yaml": {405, 405}, "/nowhere": {404, 404},
	} {
		for i, token := range []string{"", apitest.Token} {
			status, answer := s.as(token, http.MethodPost, path, "{}")
			if status != want[i] {
				t.Errorf("%s with %q: %d %s", path, token, status, answer)
			}
		}
	}
}
