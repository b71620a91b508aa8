// Package etcd keeps limits in etcd, by compare-and-swap: it shows a store on a server that has
// neither locks nor a clock. Calls of one process are decided together, so that only processes
// contend, but each of their transactions can make those of all others begin again:
//
//	processes on one key    decisions/s    calls that end with ErrContended
//	         2                  300                      0 %
//	         8                  240                      2 %
//	        32                  140                     50 %
//
// This is with four callers in each, the usual timeout, and one etcd on two busy cores, where runs
// differ by half (go test -run '^$' -bench HotKey). Nothing is recorded for calls that end so.
//
// Time is that of processes, so run NTP. A process whose clock is d ahead forgets calls of others d
// too early: a sliding-window log admits at most Max in Window − d. Others forget its calls d too
// late, and may refuse what fits. If d is more than a Window, there is no limit. No clock makes a
// state corrupt.
//
// Start etcd with --max-txn-ops=256, or a TakeAll of more than 128 keys fails and so many calls at
// once are decided one by one; and with --auto-compaction-retention, since it keeps each version of
// a state until then. A state is smaller than --max-request-bytes: by default a log has at most
// 120,000 records.
package etcd

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
)

// errChanged says that nothing was saved, so that the call may be decided again.
var errChanged = fmt.Errorf("%w: another process has changed a state", driver.ErrContended)

// A Store is a store in etcd. All methods are safe for concurrent use.
type Store struct {
	store   *transactional.Store
	client  *clientv3.Client
	prefix  string
	timeout time.Duration // how long a call may begin transactions, and how long the last may take
}

var _ driver.Store = (*Store)(nil)

// New returns a store under keys that begin with prefix, which nothing else uses. It does no I/O.
// Half of opts.Timeout is for transactions that others make begin again, half for the last one.
func New(
	client *clientv3.Client, prefix string, opts *transactional.Options,
) (*Store, error) {
	if prefix == "" {
		return nil, fmt.Errorf("%w options: etcd: no prefix", driver.ErrInvalid)
	}
	var with transactional.Options
	if opts != nil {
		with = *opts
	}
	with.Timeout = cmp.Or(with.Timeout, time.Second) / 2
	s := &Store{client: client, prefix: prefix, timeout: with.Timeout}
	var err error
	s.store, err = transactional.New(func(context.Context) (transactional.Tx, error) {
		return &tx{store: s}, nil
	}, &with)
	return s, err
}

// Take decides one demand.
func (s *Store) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	err = s.retry(ctx, func() error {
		res, err = s.store.Take(ctx, d)
		return err
	})
	return res, err
}

// TakeAll decides several demands as one.
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	return s.retry(ctx, func() error { return s.store.TakeAll(ctx, ds, out) })
}

// retry calls take until no other process has changed the states meanwhile, or time is over.
func (s *Store) retry(ctx context.Context, take func() error) error {
	began, changed := time.Now(), false
	for {
		err := take()
		if errors.Is(err, errChanged) && time.Since(began) < s.timeout {
			changed = true
			continue
		}
		if changed && driver.IsOutage(err) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", driver.ErrContended, err) // the server has answered
		}
		return err
	}
}

// Close makes further calls return [driver.ErrClosed]. It does not close the client.
func (s *Store) Close() error { return s.store.Close() }

// A tx reads in one transaction of etcd, and writes in another one if nothing has changed.
type tx struct {
	store     *Store
	unchanged []clientv3.Cmp // all that was read, since a decision may depend on each
	puts      []clientv3.Op
}

func (t *tx) Load(ctx context.Context, keys []string) (states [][]byte, now int64, err error) {
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(t.store.prefix + key)
	}
	resp, err := t.store.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, 0, err
	}
	states = make([][]byte, len(keys))
	for i, r := range resp.Responses {
		revision := int64(0) // of a key that does not exist
		for _, kv := range r.GetResponseRange().Kvs {
			revision, states[i] = kv.ModRevision, kv.Value[min(8, len(kv.Value)):]
		}
		t.unchanged = append(t.unchanged, at(t.store.prefix+keys[i], revision))
	}
	return states, time.Now().UnixMicro(), nil
}

func at(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// Save prepares what Commit writes: after the time in µs when a state expires, the state.
func (t *tx) Save(_ context.Context, states []transactional.State) error {
	for _, s := range states {
		value := append(binary.BigEndian.AppendUint64(nil, uint64(s.Expires)), s.Bytes...)
		t.puts = append(t.puts, clientv3.OpPut(t.store.prefix+s.Key, string(value)))
	}
	return nil
}

func (t *tx) Commit(ctx context.Context) error {
	resp, err := t.store.client.Txn(ctx).If(t.unchanged...).Then(t.puts...).Commit()
	switch {
	case err != nil && isRefused(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case err != nil:
		return err // the outcome is unknown
	case !resp.Succeeded:
		return errChanged
	}
	return nil
}

// isRefused reports whether err says that the transaction was not run, such as one that is too
// large.
func isRefused(err error) bool {
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
	}
	return code == codes.InvalidArgument || code == codes.ResourceExhausted ||
		code == codes.PermissionDenied || code == codes.Unauthenticated
}

func (t *tx) Rollback() {}

// Sweep deletes states that expired by a time in µs since the Unix epoch. Call it every few
// minutes in one process, with the time of a minute ago: clocks differ, and a transaction that has
// read no state must not find that a state has come and gone.
func (s *Store) Sweep(ctx context.Context, until int64) error {
	const page = 50 // keys, of the 128 operations that a transaction may have
	from, end := s.prefix, clientv3.GetPrefixRangeEnd(s.prefix)
	for more := true; more; {
		resp, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return err
		}
		var deletes []clientv3.Op
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			from = key + "\x00"
			if len(kv.Value) < 8 || int64(binary.BigEndian.Uint64(kv.Value)) <= until {
				deletes = append(deletes, clientv3.OpTxn([]clientv3.Cmp{at(key, kv.ModRevision)},
					[]clientv3.Op{clientv3.OpDelete(key)}, nil))
			}
		}
		if len(deletes) > 0 {
			if _, err := s.client.Txn(ctx).Then(deletes...).Commit(); err != nil {
				return err
			}
		}
		more = resp.More
	}
	return nil
}
