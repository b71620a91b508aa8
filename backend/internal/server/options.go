package server

import (
	"cmp"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

const defaultPrefix = "rl:"

// DefaultTimeout is how long a decision may take where Options.Timeout is zero.
const DefaultTimeout = 100 * time.Millisecond

// CheckOptions returns an error that wraps [driver.ErrInvalid] for options that [New] or
// a cache would refuse.
func CheckOptions(opts serverstore.OpenOptions) error {
	if err := denycache.CheckOptions(opts); err != nil {
		return err
	}
	_, err := keyspaceOf(opts.Options)
	return err
}

// keyspaceOf checks opts and returns their keyspace.
func keyspaceOf(opts serverstore.Options) (keys keyspace.Keyspace, err error) {
	if opts.Timeout < 0 {
		return keys,
			fmt.Errorf("%w options: Timeout %v is negative", driver.ErrInvalid, opts.Timeout)
	}
	if most := cmp.Or(opts.Timeout, DefaultTimeout) / 2; opts.Linger < 0 || opts.Linger > most {
		return keys, fmt.Errorf("%w options: Linger %v is not between 0 and %v, half of Timeout",
			driver.ErrInvalid, opts.Linger, most)
	}
	if opts.Linger > 0 && opts.NoBatching {
		return keys, fmt.Errorf("%w options: Linger with NoBatching", driver.ErrInvalid)
	}
	keys, err = keyspace.New(cmp.Or(opts.Prefix, defaultPrefix), opts.Tag)
	if err != nil {
		return keys, fmt.Errorf("%w options: Prefix: %w", driver.ErrInvalid, err)
	}
	return keys, nil
}
