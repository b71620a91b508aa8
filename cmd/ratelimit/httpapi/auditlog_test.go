package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// TestTraceIsBounded: what strangers cause is in one line a second, with the number of the others.
func TestTraceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewAuditLog(audit.New(slog.New(slog.NewJSONHandler(&log, nil)), audit.Options{}),
			decision.New(nil))
		door := NewAccess(new(access.Table), l).Only(nil)
		for range 50 {
			r := httptest.NewRequest(http.MethodPost, "/v1/reset", strings.NewReader("{}"))
			door.ServeHTTP(httptest.NewRecorder(), r)
			l.Begin(t.Context(), audit.Event{Action: "release"}).End(t.Context(), 204, nil)
			time.Sleep(time.Second / 10)
		}
		for msg, suppressed := range map[string]int{
			"request refused: it has no right": 9, "write": 9} {
			of := func(n int) string { return fmt.Sprintf(`"suppressed":%d}`, n) }
			lines := regexp.MustCompile(`.*"msg":"`+msg+`".*`).FindAllString(log.String(), -1)
			if len(lines) != 5 || !strings.HasSuffix(lines[0], of(0)) ||
				!strings.HasSuffix(lines[4], of(suppressed)) {
				t.Errorf("%s: %q", msg, lines)
			}
		}
	})
}

// lines is a sink that counts.
type lines struct {
	n, suppressed int
	of            map[string]int // by the name of the actor
}

func (l *lines) Write(e *audit.Event, line []byte) {
	var got audit.Event
	if err := json.Unmarshal(line, &got); err != nil {
		panic(err)
	}
	l.n++
	l.suppressed += e.Suppressed
	l.of[got.Actor.Name]++
}

// TestFloodIsBounded: 10,000 requests without a right in ten seconds leave 60 lines and ten, which
// say how many they stand for, and do not keep a refusal of a credential that is known out.
func TestFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := &lines{of: make(map[string]int)}
		l := NewAuditLog(audit.New(discard, audit.Options{Sinks: []audit.Sink{got}}),
			decision.New(nil))
		const reader = "a-token-to-read-with"
		door := NewAccess(tokens(t, reader+" ann", "a-token-to-write-with"), l).Only(nil)
		send := func(token string, want int) {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/v1/reset", strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			if door.ServeHTTP(w, r); w.Code != want {
				t.Fatalf("%s: %d, want %d", token, w.Code, want)
			}
		}
		const refused = 10_000
		for i := range refused {
			send(fmt.Sprint("a-token-of-nobody-", i), 401)
			time.Sleep(10 * time.Second / refused)
		}
		if got.n != 69 || got.n+got.suppressed < refused-1000 {
			t.Errorf("%d lines, which stand for %d more", got.n, got.suppressed)
		}
		send(reader, 403)
		if got.of["ann"] != 1 {
			t.Errorf("the refusal of a known token is not there: %v", got.of)
		}
	})
}
