package server

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// TestStoreLetsKeysGo: once a call has returned, the store, its pools and hanging commands do not
// refer to the string that the key was a part of.
func TestStoreLetsKeysGo(t *testing.T) {
	const callers, size = 64, 1 << 20
	for _, tt := range []struct {
		name                 string
		single, cache, hangs bool
		several              bool
	}{
		{name: "single", single: true},
		{name: "single, cache", single: true, cache: true},
		{name: "single, cache, hangs", single: true, cache: true, hangs: true},
		{name: "single, several, cache, hangs",
			single: true, several: true, cache: true, hangs: true},
		{name: "batched"},
		{name: "batched, hangs", hangs: true},
		{name: "batched, cache", cache: true},
		{name: "batched, cache, hangs", cache: true, hangs: true},
		{name: "batched, several, hangs", several: true, hangs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := hanging{closed: make(chan struct{})}
			if !tt.hangs {
				close(client.closed)
			}
			s, err := New(client, Words{},
				serverstore.Options{NoBatching: tt.single, Timeout: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if tt.cache {
				s.UseCache(denycache.New(serverstore.OpenOptions{}))
			}
			key := func(i int) string { return (strconv.Itoa(i) + strings.Repeat("k", size))[:16] }
			empty := heap.Live()
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					ds := []driver.Demand{demandOn(key(i), 1), demandOn(key(callers+i), 1)}
					out := make([]driver.Result, 2)
					var err error
					if tt.several {
						err = s.TakeAll(t.Context(), ds, out)
					} else {
						_, err = s.Take(t.Context(), ds[0])
					}
					if err == nil {
						t.Error("decided by a client that is closed")
					}
				})
			}
			wg.Wait()
			runtime.GC() // once, which leaves what is in pools
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if held := int64(m.HeapAlloc) - empty; held > 4*size {
				t.Errorf("%d bytes are held after %d calls", held, callers)
			}
			if tt.hangs {
				close(client.closed)
			}
		})
	}
}
