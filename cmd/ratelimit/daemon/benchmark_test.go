package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// manyLimits are files of 10,000 limits: one of the service, and one of envoyproxy/ratelimit.
func manyLimits() map[string]string {
	var own, envoy strings.Builder
	own.WriteString("limits:\n")
	envoy.WriteString("domain: edge\ndescriptors:\n")
	for i := range 10_000 {
		fmt.Fprintf(&own, "  - {name: other%d, when: {tenant: tenant%d, path: /v%d*}, "+
			"key: [tenant, user], max: %d/1m}\n", i, i, i%10, 100+i)
		fmt.Fprintf(&envoy, "  - key: tenant\n    value: tenant%d\n    rate_limit:\n"+
			"      unit: minute\n      requests_per_unit: %d\n", i, 100+i)
	}
	return map[string]string{"own": own.String(), "envoy": envoy.String()}
}

// BenchmarkLoad loads files of 10,000 limits and puts them in force.
func BenchmarkLoad(b *testing.B) {
	store, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for name, text := range manyLimits() {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "limits.yaml")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
			c := &Serve{source: config.Source{Path: path}, loaded: &config.Config{}}
			l, err := c.newLimits(b.Context(), c.newDecider(store, nil, decision.WithObserver(
				func(context.Context, ratelimit.Observation) {})), nil, apitest.Discard)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.load(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecisionLog compares requests whose decisions are not logged with some that are.
func BenchmarkDecisionLog(b *testing.B) {
	for _, share := range []float64{0, .01, 1} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			store, err := memorystore.New(nil)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			c := &Serve{LogDecisions: share, LogFormat: "json", Flags: config.Flags{
				Limit: config.LimitFlags(ratelimit.Limit{Name: "units", Max: 1_000_000_000,
					Window: 10 * time.Millisecond})}}
			hash, err := newHash(nil)
			if err != nil {
				b.Fatal(err)
			}
			l, err := c.newLimits(b.Context(), c.newDecider(
				store, nil, c.logDecisions(hash, c.logger(io.Discard))), nil, apitest.Discard)
			if err != nil {
				b.Fatal(err)
			}
			h := httpapi.New(httpapi.Options{
				Decider: l.decider, Config: l.config.Load, Log: apitest.Discard})
			b.ReportAllocs()
			for b.Loop() {
				apitest.AnswerOf(b, h, "/v1/decide", `{"descriptor":{"key":"a"}}`)
			}
		})
	}
}
