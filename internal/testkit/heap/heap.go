// Package heap measures the memory that tests hold.
package heap

import (
	"runtime"
	"time"
)

// Live returns the bytes of live objects on the heap. It collects garbage until the size is stable,
// because finalizers, pools and ending goroutines release memory only after one or two collections.
func Live() int64 {
	least := collect()
	for same := 0; same < 3; same++ {
		time.Sleep(time.Millisecond) // lets ending goroutines end
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
