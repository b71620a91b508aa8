package heap_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// TestLive: memory that is held counts, also if it was allocated late; memory held only by a pool,
// a finalizer or an ending goroutine does not.
func TestLive(t *testing.T) {
	const size, slack = 16 << 20, 1 << 20
	const least = size - size/1000 // Live ends when collections find less than a thousandth
	empty := heap.Live()
	held := make([]byte, size)
	if grown := heap.Live() - empty; grown < least || grown > size+slack {
		t.Errorf("got %d live bytes, want the %d that are held", grown, size)
	}
	runtime.KeepAlive(held)

	var pool sync.Pool
	pooled := make([]byte, size)
	pool.Put(&pooled)
	finalized := &struct{ bytes []byte }{make([]byte, size)}
	runtime.SetFinalizer(finalized, func(*struct{ bytes []byte }) {})
	ended := make(chan struct{})
	go func(bytes []byte) {
		<-ended
		runtime.KeepAlive(bytes)
	}(make([]byte, size))
	close(ended)
	if grown := heap.Live() - empty; grown > slack {
		t.Errorf("got %d live bytes, want none", grown)
	}
}
