package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// withinScene is a scene with --settle-within-hold.
func withinScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.access = NewAccess(tokens(t, "a-token-to-read-with", apitest.Token), s.api.audit)
	s.api.within = true
	return s
}

// settle sends a settlement with a header Authorization, if that is not empty.
func (s *scene) settle(authorization, body string) int {
	s.Helper()
	for i, id := range s.ids {
		body = strings.ReplaceAll(body, "$"+string(rune('1'+i)), id)
	}
	r := request(http.MethodPost, "/v1/settle", body)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	status, header, _ := call(s.T, s.access.Only(s.api), r)
	if (header.Get("WWW-Authenticate") != "") != (status == http.StatusUnauthorized) {
		s.Errorf("%d has the challenge %q", status, header.Get("WWW-Authenticate"))
	}
	return status
}

// TestSettleWithinHold: with --settle-within-hold a settlement without a token charges at most what
// the store holds, whatever its id says.
func TestSettleWithinHold(t *testing.T) {
	for _, tt := range []struct {
		name, authorization, body string
		forged                    string // what the id says it holds, in place of 60
		advance                   time.Duration
		want                      int
		left                      string // tokens of 100, 60 of which are held
	}{
		{"less", "", id(1, `"used":20`), "", 0, 204, "tokens=80"},
		{"all", "", id(1, `"used":60`), "", 0, 204, "tokens=40"},
		{"as held", "", id(1), "", 0, 204, "tokens=40"},
		{"nothing", "", id(1, `"used":0`), "", 0, 204, "tokens=100"},
		{"late", "", id(1, `"used":60`), "", time.Hour, 204, "tokens=40"},
		{"after a day", "", id(1, `"used":61`), "", 25 * time.Hour, 409, "tokens=100"},
		{"one more", "", id(1, `"used":61`), "", 0, 401, "tokens=40"},
		{"most", "", id(1, `"used":1099511627776`), "", 0, 401, "tokens=40"},
		{"most by name", "", id(1, `"used":[{"limit":"tokens","n":1099511627776}]`), "", 0, 401,
			"tokens=40"},
		{"late and more", "", id(1, `"used":61`), "", time.Hour, 401, "tokens=40"},
		{"a forged id", "", id(1, `"used":61`), "1099511627776", 0, 401, "tokens=40"},
		{"a forged id, as held", "", id(1), "1099511627776", 0, 401, "tokens=40"},
		{"a forged id of little", "", id(1, `"used":60`), "1", 0, 204, "tokens=40"},
		{"another token", "Bearer another-token-of-this", id(1, `"used":61`), "", 0, 401,
			"tokens=40"},
		{"another scheme", "Negotiate " + apitest.Token, id(1, `"used":61`), "", 0, 401,
			"tokens=40"},
		{"a token that reads", "Bearer a-token-to-read-with", id(1, `"used":61`), "", 0, 403,
			"tokens=40"},
		{"a token", "Bearer " + apitest.Token, id(1, `"used":130`), "", 0, 204, "tokens=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := withinScene(t)
			s.post("/v1/decide", hold("tokens 60, calls"))
			if tt.forged != "" {
				s.ids[0] = apitest.Forge(t, s.ids[0], `"n":60`, `"n":`+tt.forged)
			}
			s.advance(tt.advance)
			if got := s.settle(tt.authorization, tt.body); got != tt.want {
				t.Errorf("the status is %d, want %d", got, tt.want)
			}
			s.checkLeft(tt.left)
			if tt.want == 401 || tt.want == 403 { // what was held can still be settled
				if got := s.settle("", id(1, `"used":50`)); got != 204 {
					t.Errorf("then within the hold: %d", got)
				}
				s.checkLeft("tokens=50")
			}
		})
	}
	s := withinScene(t)
	s.post("/v1/decide", hold("requests 2, tokens 60"))
	const used = `"used":[{"limit":"tokens","n":60},{"limit":"requests","n":`
	if got := s.settle("", id(1, used+`3}]`)); got != 401 {
		t.Errorf("more of one of two limits: %d", got)
	}
	if got := s.settle("", id(1, used+`2}]`)); got != 204 {
		t.Errorf("two limits: %d", got)
	}
	if got := s.settle("", id(1, used+`2}]`)); got != 409 {
		t.Errorf("again: %d", got)
	}
	s.checkLeft("requests=1 tokens=40")
	s = withinScene(t)
	s.post("/v1/decide", hold("requests 0, tokens 60")) // of requests nothing is held
	for _, tt := range []struct{ n, want int }{{61, 401}, {60, 204}} {
		body := id(1, fmt.Sprintf(`"used":[{"limit":"tokens","n":%d}]`, tt.n))
		if got := s.settle("", body); got != tt.want {
			t.Errorf("%d tokens of 60: %d, want %d", tt.n, got, tt.want)
		}
	}
}
