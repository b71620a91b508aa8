package rueidisstore

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit/backend/internal/pipelined"
	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// A Store keeps its state on Redis or Valkey. It is safe for concurrent use. Create one with [New]
// or [Open].
type Store struct {
	store *server.Store
	owned pipelined.Client // made by Open, or nil
}

var _ driver.Store = (*Store)(nil)

var words = server.Words{
	Package:  "rueidisstore",
	Single:   "a client for one server, rueidis:// in a URL",
	Cluster:  "a client without ForceSingleClient, rueidis+cluster:// in a URL",
	Sentinel: "a client with Sentinel.MasterSet, rueidis+sentinel:// in a URL",
}

// New returns a store on client's servers; nil options are the zero Options. It does no I/O;
// [Store.Probe] does. An error wraps [driver.ErrInvalid].
func New(client rueidis.Client, opts *serverstore.Options) (*Store, error) {
	if opts == nil {
		opts = &serverstore.Options{}
	}
	if client == nil {
		return nil, fmt.Errorf("%w options: no client", driver.ErrInvalid)
	}
	s, err := pipelined.NewStore(adapter{client}, words, *opts)
	if err != nil {
		return nil, err
	}
	return &Store{store: s}, nil
}

// Take decides one demand.
//
// Besides the errors of [driver.CheckTake] it returns one that wraps [driver.ErrNoScript],
// [driver.ErrUnavailable] or [driver.ErrOutcomeUnknown], and the cause. Only with the last
// may the demand have been recorded.
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. On a cluster their keys must be in one slot (see
// [serverstore.Options].Tag); otherwise the error wraps [errors.ErrUnsupported]. The other errors
// are those of Take.
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	return s.store.TakeAll(ctx, ds, out)
}

// Probe reports whether the store can work: whether the server answers, is Redis or Valkey 7.0 or
// later, runs scripts, and lets this user run the commands that decisions need. Call it at the
// start of a program. It takes 5s at most, ends when ctx ends, and leaves nothing on the server. On
// a cluster it sends INFO to all servers, of which one must answer, and runs a script on one
// primary.
//
// An error wraps [errors.ErrUnsupported] if the server or the client is of the wrong type, and
// [driver.ErrUnavailable] otherwise; if the server refuses the user, it also wraps
// [serverstore.ErrDenied].
func (s *Store) Probe(ctx context.Context) (serverstore.Server, error) { return s.store.Probe(ctx) }

// Stats returns the statistics of the store. Each number was right at some moment of the call.
// Stats takes no lock and does not slow decisions.
func (s *Store) Stats() serverstore.Stats { return s.store.Stats() }

// Close makes all later calls fail with [driver.ErrClosed]. It closes the client that [Open]
// made, but not the client of [New], which is the caller's. Close always returns nil.
func (s *Store) Close() error {
	if s.owned != nil {
		defer s.owned.Close()
	}
	return s.store.Close()
}
