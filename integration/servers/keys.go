package servers

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// FreshKey returns a key that no other test uses.
func FreshKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d", t.Name(), FreshNumber())
}

// FreshNumber returns a number that it has not returned before.
func FreshNumber() int64 { return numbers.Add(1) }

var numbers atomic.Int64

// UniquePrefix returns a prefix that separates the keys of a test from those of all other tests and
// runs.
func UniquePrefix() string {
	return fmt.Sprintf("ratelimit-test:%x-%x:", time.Now().UnixNano(), rand.Uint32())
}
