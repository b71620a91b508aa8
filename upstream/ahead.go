package upstream

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxAhead is how many bytes of a body are read ahead, and aheadTime for how long at most: a body
// that never ends holds up no caller for longer.
const (
	maxAhead  = 64 << 10
	aheadTime = time.Second
)

// readAhead returns the beginning of the body of res, and gives res a body with the same bytes and
// the same error.
func readAhead(ctx context.Context, res *http.Response) []byte {
	b := &aheadBody{body: res.Body, ended: make(chan struct{})}
	res.Body = b
	go b.fill()
	timer := time.NewTimer(aheadTime)
	defer timer.Stop()
	select {
	case <-b.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	return b.ahead[:len(b.ahead):len(b.ahead)]
}

// An aheadBody is a body whose beginning is read by a goroutine.
type aheadBody struct {
	body  io.ReadCloser
	ended chan struct{} // closed when the goroutine ends, which may still wait for a byte

	mu      sync.Mutex
	stopped bool // nothing more is read ahead
	closed  bool
	ahead   []byte
	taken   int   // bytes of ahead that the caller has
	err     error // what the body returned after ahead
}

func (b *aheadBody) fill() {
	defer close(b.ended)
	chunk := make([]byte, 4<<10)
	for left := maxAhead; left > 0; {
		n, err := b.body.Read(chunk[:min(len(chunk), left)])
		left -= n
		b.mu.Lock()
		b.ahead, b.err = append(b.ahead, chunk[:n]...), err
		enough := err != nil || b.stopped
		b.mu.Unlock()
		if enough {
			return
		}
	}
}

// Read returns what has been read ahead as soon as there is any, and then what the body returns.
func (b *aheadBody) Read(p []byte) (int, error) {
	if n, err := b.take(p); n > 0 || err != nil {
		return n, err
	}
	<-b.ended
	if n, err := b.take(p); n > 0 || err != nil {
		return n, err
	}
	return b.body.Read(p)
}

// take returns 0 and nil if nothing is known.
func (b *aheadBody) take(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.taken == len(b.ahead) {
		return 0, b.err
	}
	n = copy(p, b.ahead[b.taken:])
	b.taken += n
	return n, nil
}

// Close ends a read that waits, as that of net/http does.
func (b *aheadBody) Close() error {
	b.mu.Lock()
	b.stopped, b.closed = true, true
	b.mu.Unlock()
	return b.body.Close()
}
