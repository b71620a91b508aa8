package layer

import (
	"context"
	"fmt"
	"sync"

	"github.com/truewindow/ratelimit/driver"
)

// Prefix is a store that puts a prefix before every key, so that several users of the store inside
// share nothing. Create one with [NewPrefix]. It is safe for concurrent use.
type Prefix struct {
	store   driver.Store
	prefix  string
	scratch sync.Pool // of *[]driver.Demand
}

// maxScratch is the most demands of a TakeAll whose room is kept for the next one.
const maxScratch = 1024

var _ driver.Store = (*Prefix)(nil)

// NewPrefix returns a store that calls store with prefix followed by the key. The prefix may be any
// bytes, at least one. An error wraps [driver.ErrInvalid].
//
// Two prefixes share nothing if neither begins with the other. That is so if each ends in a byte
// that it has nowhere else, as "api:" and "mail:" do. But "a:" and "a:b:" can share keys, and so
// can a prefix and a user of store without one.
func NewPrefix(store driver.Store, prefix string) (*Prefix, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if prefix == "" {
		return nil, fmt.Errorf("%w options: no prefix", driver.ErrInvalid)
	}
	s := &Prefix{store: store, prefix: prefix}
	s.scratch.New = func() any { return new([]driver.Demand) }
	return s, nil
}

// Take decides one demand. Result and error are those of the store inside.
func (s *Prefix) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Key != "" { // with a prefix, the store would not see that it is empty
		d.Key = s.prefix + d.Key
	}
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. Results and error are those of the store inside.
func (s *Prefix) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	scratch := s.scratch.Get().(*[]driver.Demand)
	defer s.release(scratch)
	*scratch = append((*scratch)[:0], ds...)
	for i := range *scratch {
		if d := &(*scratch)[i]; d.Key != "" {
			d.Key = s.prefix + d.Key
		}
	}
	return s.store.TakeAll(ctx, *scratch, out)
}

// release drops the keys before the scratch is pooled, so that the pool does not hold keys of
// callers.
func (s *Prefix) release(scratch *[]driver.Demand) {
	if cap(*scratch) > maxScratch {
		return
	}
	clear(*scratch)
	s.scratch.Put(scratch)
}
