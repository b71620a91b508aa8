package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/layer"
)

// TestLogBreaker: the log says why a breaker opened or a trial failed. Trials have the level debug.
func TestLogBreaker(t *testing.T) {
	for _, tt := range []struct {
		from, to layer.BreakerState
		want     []string
	}{
		{layer.BreakerClosed, layer.BreakerOpen,
			[]string{"WARN", "breaker is open", "breaker=open", "planted", "REDIS_TIMEOUT"}},
		{layer.BreakerOpen, layer.BreakerHalfOpen,
			[]string{"DEBUG", "as a trial", "breaker=half-open"}},
		{layer.BreakerHalfOpen, layer.BreakerOpen,
			[]string{"DEBUG", "trial failed", "breaker=open", "planted"}},
		{layer.BreakerHalfOpen, layer.BreakerClosed,
			[]string{"INFO", "breaker is closed", "breaker=closed"}},
	} {
		var b bytes.Buffer
		log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
		logBreaker(log, tt.from, tt.to, fmt.Errorf("planted: %w", context.DeadlineExceeded))
		for _, want := range tt.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("from %v to %v: got %q, want %q in it", tt.from, tt.to, b.String(), want)
			}
		}
	}
}
