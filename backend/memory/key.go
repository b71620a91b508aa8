package memorystore

import (
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// shortened returns ds with each key as the store holds it, so that MaxKeys bounds the memory for
// keys. It does not change ds.
func shortened(ds []ratelimit.Demand) []ratelimit.Demand {
	long := false
	for i := range ds {
		long = long || len(ds[i].Key) > longkey.Max
	}
	if !long {
		return ds
	}
	short := make([]ratelimit.Demand, len(ds))
	for i, d := range ds {
		d.Key = longkey.Shorten(d.Key)
		short[i] = d
	}
	return short
}
