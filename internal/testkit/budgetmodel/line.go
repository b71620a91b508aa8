package budgetmodel

import (
	"context"
	"sync"

	"github.com/truewindow/ratelimit/driver"
)

// A line is the way of one client to the store. It can be cut, and it keeps what was renewed.
type line struct {
	store driver.Store

	mu      sync.Mutex
	now     func() int64
	cut     bool
	id      uint64 // of the last call that held units
	renewed []renewal
}

// renewal is the answer to an OpHold of 0 units.
type renewal struct {
	at int64
	driver.Demand
	units int64
}

func (l *line) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := l.before(); err != nil {
		return driver.Result{}, err
	}
	res, err := l.store.Take(ctx, d)
	if err == nil {
		l.note([]driver.Demand{d}, []driver.Result{res})
	}
	return res, err
}

func (l *line) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if err := l.before(); err != nil {
		return err
	}
	err := l.store.TakeAll(ctx, ds, out)
	if err == nil {
		l.note(ds, out)
	}
	return err
}

func (l *line) before() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return driver.ErrUnavailable
	}
	return nil
}

func (l *line) note(ds []driver.Demand, out []driver.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, d := range ds {
		switch {
		case d.Op != driver.OpHold:
		case d.N > 0:
			l.id = d.ID
		case l.now != nil:
			l.renewed = append(l.renewed, renewal{l.now(), d, out[i].Units})
		}
	}
}

// drain returns what was renewed since the last call.
func (l *line) drain() []renewal {
	l.mu.Lock()
	defer l.mu.Unlock()
	renewed := l.renewed
	l.renewed = nil
	return renewed
}

func (l *line) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

func (l *line) lastID() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}
