package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// answerOf returns the body of the answer to a request, which must succeed.
func answerOf(t testing.TB, h http.Handler, path, body string) []byte {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, request(http.MethodPost, path, body))
	if rec.Code >= 300 {
		t.Fatalf("%s %s: %d %s", path, body, rec.Code, rec.Body)
	}
	return rec.Body.Bytes()
}

// BenchmarkRequests compares a decision that takes a unit with one that holds it and is settled, on
// the store in memory and without a network.
func BenchmarkRequests(b *testing.B) {
	store, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	h := limitsAPI(b, store,
		ratelimit.Limit{Name: "tokens", Max: 1_000_000_000, Window: 10 * time.Millisecond})
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			answerOf(b, h, "/v1/decide", `{"claims":[{"limit":"tokens","key":"a","n":5}]}`)
		}
	})
	b.Run("hold and settle", func(b *testing.B) {
		for b.Loop() {
			var held renewal
			if err := json.Unmarshal(answerOf(b, h, "/v1/decide",
				`{"hold_ms":0,"claims":[{"limit":"tokens","key":"a","n":5}]}`), &held); err != nil {
				b.Fatal(err)
			}
			answerOf(b, h, "/v1/settle", `{"id":"`+held.ID+`","used":3}`)
		}
	})
}

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
			c := &serveCmd{source: config.Source{Path: path}, loaded: &config.Config{}}
			l, err := c.newLimits(b.Context(), c.newDecider(store, nil, decision.WithObserver(
				func(context.Context, ratelimit.Observation) {})), discard)
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
			c := &serveCmd{LogDecisions: share, LogFormat: "json", Flags: config.Flags{
				Limit: []ratelimit.Limit{
					{Name: "units", Max: 1_000_000_000, Window: 10 * time.Millisecond}}}}
			hash, err := newHash(nil)
			if err != nil {
				b.Fatal(err)
			}
			l, err := c.newLimits(b.Context(), c.newDecider(
				store, nil, c.logDecisions(hash, c.logger(io.Discard))), discard)
			if err != nil {
				b.Fatal(err)
			}
			h := newAPI(apiOptions{Decider: l.decider, Config: l.config.Load, Log: discard})
			b.ReportAllocs()
			for b.Loop() {
				answerOf(b, h, "/v1/decide", `{"descriptor":{"key":"a"}}`)
			}
		})
	}
}

// TestMemoryOfHolds logs the memory of many open holds, in its long form of a million: on as few
// keys as can hold them, and on a key each.
func TestMemoryOfHolds(t *testing.T) {
	const perKey = 1 << 16
	holds := 20_000
	if os.Getenv("RATELIMIT_FULL") != "" {
		holds = 1_000_000
	}
	for _, keys := range []int{(holds + perKey - 1) / perKey, holds} {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		h := limitsAPI(t, store, ratelimit.Limit{Name: "tokens", Max: perKey, Window: time.Hour})
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range holds {
			answerOf(t, h, "/v1/decide", fmt.Sprintf(
				`{"hold_ms":0,"claims":[{"limit":"tokens","key":"user:%d"}]}`, i%keys))
		}
		each := (heap() - before) / int64(holds)
		t.Logf("%d open holds on %d keys take %d bytes each", holds, keys, each)
		if most := int64(600); each > most {
			t.Errorf("%d bytes for each hold, want at most %d", each, most)
		}
		runtime.KeepAlive(h)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
