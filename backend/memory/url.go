package memorystore

import (
	"context"
	"fmt"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/driver"
)

func init() { backend.Register("memory", openURL) }

// openURL opens "memory" and, with the largest number of states, "memory:?max-keys=100000".
func openURL(_ context.Context, u *backend.URL) (*backend.Store, error) {
	var opts Options
	opts.MaxKeys, _ = u.Int("max-keys", 1)
	if err := u.Check(); err != nil {
		return nil, err
	}
	if u.Hosts != nil || u.Path != "" {
		return nil, fmt.Errorf("%w options: the URL of a store in memory has a host or a path",
			driver.ErrInvalid)
	}
	s, err := New(&opts)
	if err != nil {
		return nil, err
	}
	return &backend.Store{
		Store: s, Stats: func() any { return s.Stats() }, Close: s.Close,
	}, nil
}
