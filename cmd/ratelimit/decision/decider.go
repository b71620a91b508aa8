package decision

import (
	"context"
	"errors"

	"github.com/truewindow/ratelimit"
)

// A Decider decides requests on one store, under the set of limits that is in force. It is safe for
// concurrent use.
type Decider struct {
	store ratelimit.Store
}

// An Option changes what [New] makes.
type Option func(*Decider)

// New returns a Decider without a set of limits: call Use before Decide.
func New(store ratelimit.Store, options ...Option) *Decider {
	d := &Decider{store: store}
	for _, o := range options {
		o(d)
	}
	return d
}

// Decide decides the requests of a call.
func (d *Decider) Decide(_ context.Context, _ []Request, _ Options) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}
