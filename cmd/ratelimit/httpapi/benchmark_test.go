package httpapi

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

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
			apitest.AnswerOf(b, h, "/v1/decide", `{"claims":[{"limit":"tokens","key":"a","n":5}]}`)
		}
	})
	b.Run("hold and settle", func(b *testing.B) {
		for b.Loop() {
			var held renewal
			if err := json.Unmarshal(apitest.AnswerOf(b, h, "/v1/decide",
				`{"hold_ms":0,"claims":[{"limit":"tokens","key":"a","n":5}]}`), &held); err != nil {
				b.Fatal(err)
			}
			apitest.AnswerOf(b, h, "/v1/settle", `{"id":"`+held.ID+`","used":3}`)
		}
	})
}

// TestMemoryOfHolds logs the memory of many open holds, in its long form of a million: on as few
// keys as can hold them, and on a key each.
func TestMemoryOfHolds(t *testing.T) {
	const perKey = 1 << 16
	holds := depth.Of(20_000, 1_000_000)
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
			apitest.AnswerOf(t, h, "/v1/decide", fmt.Sprintf(
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
