package decision_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// BenchmarkDecide decides one descriptor under two limits, and the same claims without rules.
func BenchmarkDecide(b *testing.B) {
	minute, day := tenantLimit("minute", 1<<40), tenantLimit("day", 1<<40)
	minute.Algorithm, day.Algorithm = "bucket", "bucket"
	day.Rate.Window = 24 * time.Hour
	store := newStore(b)
	d := newDecider(b, store, []*rules.Limit{minute, day})
	requests := []decision.Request{acme(1)}
	b.Run("decider", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			got, err := d.Decide(b.Context(), requests, decision.Options{})
			if err != nil || !got.Allowed {
				b.Fatal(got, err)
			}
		}
	})
	b.Run("AllowAll", func(b *testing.B) {
		var claims []ratelimit.Claim
		for _, v := range d.Set().Variants() {
			claims = append(claims, ratelimit.Claim{
				Limiter: newLimiter(b, store, v.Algorithm), Key: "acme", N: 1})
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ratelimit.AllowAll(b.Context(), claims...); err != nil {
				b.Fatal(err)
			}
		}
	})
}
