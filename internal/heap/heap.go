// Package heap measures what tests hold in memory.
package heap

import (
	"runtime"
	"time"
)

// Live returns the bytes of live objects on the heap. It collects garbage until no more is found:
// finalizers, pools and goroutines that are ending let go of memory only after a collection or two.
func Live() int64 {
	least := collect()
	for same := 0; same < 3; same++ {
		time.Sleep(time.Millisecond) // lets goroutines that were told to end, end
		if now := collect(); now < least-least/1000 {
			least, same = now, 0
		}
	}
	return collect()
}

func collect() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
