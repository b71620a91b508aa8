package teamstore

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(_ testing.TB, now func() int64) conformance.Harness {
		if now == nil {
			now = func() int64 { return time.Now().UnixMicro() }
		}
		store := &Store{now: now, states: make(map[string][]byte)}
		return conformance.Harness{
			Store:  store,
			Second: func(testing.TB) driver.Store { return store },
		}
	}, nil)
}
