package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// TestTraceIsBounded: what strangers cause is in one line a second, with the number of the others.
func TestTraceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewAuditLog(slog.New(slog.NewJSONHandler(&log, nil)), decision.New(nil), nil)
		for range 50 {
			r := httptest.NewRequest(http.MethodPost, "/v1/reset", strings.NewReader("{}"))
			l.refusal(httptest.NewRecorder(), r, &problem.Problem{Status: 401})
			l.release(&query{Context: t.Context()}, nil, nil)
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
