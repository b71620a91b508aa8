package daemon

import (
	"errors"
	"maps"
	"sync/atomic"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// leaseFlag is the share of limits that may go unused, such as 2%.
type leaseFlag float64

// UnmarshalText is called by kong.
func (f *leaseFlag) UnmarshalText(text []byte) error {
	share, err := rules.ParseLease(string(text))
	if err != nil {
		return errors.New("--lease is " + err.Error())
	}
	*f = leaseFlag(share)
	return nil
}

var errNoLease = errors.New("--lease needs a store on a server: in memory every decision is made " +
	"in this process")

// leases decide the hot keys of limits from units that they take from a store ahead.
type leases struct {
	*layer.Leased
	all    float64 // the share of limits that have none of their own
	shares atomic.Pointer[map[string]float64]
}

func newLeases(store driver.Store, all float64) (*leases, error) {
	l := &leases{all: all}
	l.shares.Store(new(map[string]float64))
	var err error
	l.Leased, err = layer.NewLeased(store, &layer.LeasedOptions{Loss: l.loss})
	return l, err
}

func (l *leases) loss(limit driver.Limit) float64 {
	if share, ok := (*l.shares.Load())[limit.Name]; ok {
		return share
	}
	return l.all
}

// use makes limits have the leases that a file says.
func (l *leases) use(limits []*rules.Limit) {
	shares := make(map[string]float64)
	for _, limit := range limits {
		if limit.Lease != nil {
			shares[limit.Name] = *limit.Lease
		}
	}
	if before := l.shares.Swap(&shares); !maps.Equal(*before, shares) {
		l.Forget()
	}
}
