package memorystore

import (
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// shortened returns ds with each key as the store holds it, so that MaxKeys bounds the memory for
// keys. It does not change ds.
func shortened(ds []driver.Demand) []driver.Demand {
	long := false
	for i := range ds {
		long = long || len(ds[i].Key) > longkey.Max
	}
	if !long {
		return ds
	}
	short := make([]driver.Demand, len(ds))
	for i, d := range ds {
		d.Key = longkey.Shorten(d.Key)
		short[i] = d
	}
	return short
}
