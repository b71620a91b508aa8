package decision

import (
	"context"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// Within reports whether held.CommitAll(used...) would record no more units than the store holds
// for held, which is the reservation of id. It renews the holds to learn their units, since anyone
// can change the numbers in an ID. The error is [ratelimit.ErrNotHeld] if nothing is held.
func (d *Decider) Within(
	ctx context.Context, id string, held *ratelimit.Reservation, used ...ratelimit.Claim,
) (bool, error) {
	asked := &renewed{Store: d.store}
	claims := held.Claims()
	var limiters []*ratelimit.Limiter
	for _, c := range claims {
		l, err := ratelimit.New(asked, c.Limiter.Algorithms()...)
		if err != nil {
			return false, err
		}
		limiters = append(limiters, l)
	}
	again, err := ratelimit.Resume(id, limiters...)
	if err != nil {
		return false, err
	}
	defer func() { _, _ = again.Token() }() // ends its renewals
	if err := again.Renew(ctx, 0); err != nil {
		return false, err
	}
	units := asked.units
	for _, c := range claims {
		var has int64
		if c.N > 0 && len(units) > 0 { // else it was not renewed
			has, units = units[0], units[1:]
		}
		n := c.N
		for _, u := range used {
			if u.Limiter == c.Limiter && u.Key == c.Key {
				n = u.N
			}
		}
		if inFlight := c.Limiter.Algorithms()[0].(driver.Holder).InFlight(); !inFlight && n > has {
			return false, nil
		}
	}
	return true, nil
}

// renewed is a store that keeps how many units the holds of a renewal have, in the order of its
// claims.
type renewed struct {
	ratelimit.Store
	units []int64
}

func (r *renewed) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	res, err := r.Store.Take(ctx, d)
	r.units = []int64{res.Units}
	return res, err
}

func (r *renewed) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	err := r.Store.TakeAll(ctx, ds, out)
	r.units = nil
	for _, res := range out {
		r.units = append(r.units, res.Units)
	}
	return err
}

// HoldRange returns the least and the longest time for which a hold under an algorithm may be held,
// or zeros if it has no holds.
func HoldRange(a driver.Algorithm) (least, longest time.Duration) {
	if h, ok := a.(driver.Holder); ok {
		return h.HoldTimeout() / 16, h.HoldTimeout() * 16
	}
	return 0, 0
}

// MayHold reports whether a hold under an algorithm may last for d; 0 is the time-out of the limit.
func MayHold(a driver.Algorithm, d time.Duration) bool {
	least, longest := HoldRange(a)
	return d == 0 || least <= d && d <= longest
}
