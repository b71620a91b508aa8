package daemon

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// withinScene is a scene with --settle-within-hold.
func withinScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	allowed := &rights{readers: newTokens(tokenFile(t, "a-token-to-read-with")),
		writers: newTokens(tokenFile(t, testToken))}
	for _, tokens := range []*tokens{allowed.readers, allowed.writers} {
		if err := tokens.read(); err != nil {
			t.Fatal(err)
		}
	}
	s.api.settling = newAccess(allowed, s.api.trace)
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
	status, header, _ := call(s.T, s.api, r)
	if (header.Get("WWW-Authenticate") != "") != (status == http.StatusUnauthorized) {
		s.Errorf("%d has the challenge %q", status, header.Get("WWW-Authenticate"))
	}
	return status
}

// forge returns an ID that says that it holds so many tokens.
func forge(t *testing.T, id, from, to string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || !strings.Contains(string(raw), from) {
		t.Fatalf("%s has no %s: %v", raw, from, err)
	}
	return base64.RawURLEncoding.EncodeToString(
		[]byte(strings.Replace(string(raw), from, to, 1)))
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
		{"another scheme", "Negotiate " + testToken, id(1, `"used":61`), "", 0, 401, "tokens=40"},
		{"a token that reads", "Bearer a-token-to-read-with", id(1, `"used":61`), "", 0, 403,
			"tokens=40"},
		{"a token", "Bearer " + testToken, id(1, `"used":130`), "", 0, 204, "tokens=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := withinScene(t)
			s.post("/v1/decide", hold("tokens 60, calls"))
			if tt.forged != "" {
				s.ids[0] = forge(t, s.ids[0], `"n":60`, `"n":`+tt.forged)
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

// TestReportWithinHold is the same for Kuadrant's calls.
func TestReportWithinHold(t *testing.T) {
	file := configFile(t, "limits:\n  - {name: tokens, key: [key], max: 100/1h, holds: 1m}\n")
	_, log, _ := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0", "--settle-within-hold")
	reports := kuadrant.NewRateLimitServiceClient(dialEnvoy(t, log))
	for _, tt := range []struct {
		authorization string
		want          codes.Code
	}{
		{"", codes.Unauthenticated},
		{"Bearer ", codes.Unauthenticated},
		{testToken, codes.Unauthenticated},
		{"Bearer x" + testToken, codes.Unauthenticated},
		{"Basic " + testToken, codes.Unauthenticated},
		{"bearer " + testToken, codes.OK},
	} {
		ctx := t.Context()
		if tt.authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", tt.authorization)
		}
		key := "with " + tt.authorization
		left := uint32(100)
		check := func(what string, err error, charged uint32) {
			t.Helper()
			if status.Code(err) != tt.want {
				t.Errorf("%s %s: %v, want %v", what, key, err, tt.want)
			}
			if tt.want == codes.OK {
				left -= charged
			}
			resp, err := reports.CheckRateLimit(t.Context(), keyCall(key, 1))
			if err != nil || resp.Statuses[0].LimitRemaining != left {
				t.Errorf("after %s %s: %v, %v, want %d left", what, key, resp, err, left)
			}
		}
		_, err := reports.Report(ctx, keyCall(key, 9))
		check("Report", err, 9)
		commit := &kuadrant.CommitRequest{Domain: "any",
			Descriptors: keyCall(key, 1).Descriptors, ActualAmount: 8}
		_, err = reports.Commit(ctx, commit)
		check("Commit without an id", err, 8)
		held, err := reports.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "any",
			Descriptors: commit.Descriptors, Amount: 10})
		if err != nil {
			t.Fatal(err)
		}
		left -= 10
		commit.ReservationId, commit.ActualAmount = forge(t, held.ReservationId, `"n":10`,
			`"n":11`), 11
		_, err = reports.Commit(ctx, commit)
		check("Commit of more", err, 1)
		if tt.want == codes.OK {
			continue
		}
		commit.ActualAmount = 10
		done, err := reports.Commit(t.Context(), commit)
		if err != nil || !done.ReservationReleased {
			t.Errorf("Commit of what is held: %v, %v", done, err)
		}
		if done, err = reports.Commit(t.Context(), commit); err != nil || done.ReservationReleased {
			t.Errorf("the Commit again: %v, %v", done, err)
		}
	}
}

// TestSettleWithinHoldNeedsTokens: the flag has no meaning without tokens.
func TestSettleWithinHoldNeedsTokens(t *testing.T) {
	var stderr strings.Builder
	code := run(t.Context(), []string{"serve", "--settle-within-hold"}, os.Stdout, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "needs --write-token-file") {
		t.Errorf("code %d: %s", code, &stderr)
	}
}

// TestSettleWithinHoldVariable: the variable has the meaning of the flag.
func TestSettleWithinHoldVariable(t *testing.T) {
	t.Setenv("RATELIMIT_SETTLE_WITHIN_HOLD", "true")
	t.Setenv("RATELIMIT_WRITE_TOKEN_FILE", filepath.Join(t.TempDir(), "none"))
	if c := parseServe(t, []string{"serve"}); !c.SettleWithinHold {
		t.Error("the variable does not set it")
	}
}
