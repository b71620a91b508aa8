package main

import (
	"context"
	"errors"

	"github.com/truewindow/ratelimit"
)

// inParts charges an answer as it goes: when a part of step tokens is used up, it holds the next
// and commits the former. So a process that is killed has charged all parts but the last.
type inParts struct {
	tokens *ratelimit.Limiter
	tenant string
	held   *ratelimit.Reservation // of step tokens, or nil
	left   int64                  // of them
}

// use makes sure that n more tokens are held, or returns errUsedUp.
func (p *inParts) use(ctx context.Context, n int64) error {
	for n > p.left {
		n, p.left = n-p.left, 0
		next, err := p.tokens.Reserve(ctx, p.tenant, step)
		if err != nil {
			return err
		}
		if !next.Allowed() {
			return errUsedUp
		}
		if err := p.end(ctx); err != nil {
			return errors.Join(err, next.Cancel(ctx))
		}
		p.held, p.left = next, step
	}
	p.left -= n
	return nil
}

// end charges what was used of the last part.
func (p *inParts) end(ctx context.Context) error {
	if p.held == nil {
		return nil
	}
	return p.held.Commit(ctx, step-p.left)
}
