package grpclimit_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

// TestRetryJitter: refused clients are told different times, none shorter than the wait, and the
// trailer has that of the RetryInfo. Without the option all are told the wait.
func TestRetryJitter(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 1))
	if _, err := limiter.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for share, longest := range map[float64]time.Duration{0: time.Hour, 0.5: 90 * time.Minute} {
		cc := start(t, &echo{}, limited(grpclimit.PerCall(limiter, secretKey),
			grpclimit.WithPushback(), grpclimit.WithRetryJitter(share)))
		told := make(map[time.Duration]bool)
		for range 20 {
			var trailer metadata.MD
			d := checkStatus(t, call(t.Context(), cc, grpc.Trailer(&trailer)),
				codes.ResourceExhausted)
			delay := d.retry.GetRetryDelay().AsDuration()
			pushed := fmt.Sprint(trailer.Get("grpc-retry-pushback-ms"))
			if delay < time.Hour || delay > longest ||
				pushed != fmt.Sprintf("[%d]", delay.Milliseconds()) {
				t.Errorf("share %v: %v, %s", share, delay, pushed)
			}
			told[delay] = true
		}
		if (len(told) > 1) != (share > 0) {
			t.Errorf("share %v: told %v", share, told)
		}
	}
}
