package batch

import (
	"sync/atomic"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/driver"
)

// request is one call of Take or TakeAll that waits for its results.
type request struct {
	keys    []string
	demands []driver.Demand
	results []driver.Result
	err     error
	panic   any
	done    chan struct{}

	state    atomic.Uint32
	batch    *batch // once sent
	enqueued int64  // tick
	timedOut bool   // the ticker has answered it and may still refer to it

	// The arrays behind keys, demands and results of a Take.
	key    [1]string
	demand [1]driver.Demand
	result [1]driver.Result
}

// The states of a request.
const (
	queued    = iota
	sent      // it may be on its way to the server
	answered  // its results, err or panic are set
	abandoned // its caller no longer waits
)

// setOne makes r a request for one demand.
func (r *request) setOne(key string, d driver.Demand) {
	r.key[0], r.demand[0] = key, d
	r.keys, r.demands, r.results = r.key[:], r.demand[:], r.result[:]
}

// clear prepares r for another use. It keeps no reference to a caller's data.
func (r *request) clear() {
	r.keys, r.demands, r.results, r.err, r.batch = nil, nil, nil, nil, nil
	r.key[0], r.demand[0] = "", driver.Demand{}
	r.state.Store(queued)
}

// batch is one request to the server, with the requests of several callers.
type batch struct {
	gate    gate.Gate
	waiting atomic.Int32 // requests whose callers have not abandoned them
}

// abandon removes one waiting request from b. It reports whether b may have been sent, or may still
// be sent for other requests. Once the last request is abandoned, b is not sent if it has not been
// sent yet.
func (b *batch) abandon() (sent bool) {
	return b.waiting.Add(-1) > 0 || b.gate.Abandon()
}
