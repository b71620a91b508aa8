package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const testLinger = 4 * time.Millisecond

// lingering is a queue whose batches linger, in a bubble of synctest.
type lingering struct {
	*Queue
	t      *testing.T
	server *fakeServer
	calls  sync.WaitGroup
	start  time.Time
}

func testLingering(t *testing.T, test func(l *lingering)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, q := newFakeServer(t)
		q.Shared.Linger = testLinger
		l := &lingering{Queue: q, t: t, server: s, start: time.Now()}
		test(l)
		l.calls.Wait()
		synctest.Wait()
		if q.running != 0 || len(q.waitingLocked()) > 0 {
			t.Errorf("%d workers and %d requests are left", q.running, len(q.waitingLocked()))
		}
	})
}

// ask takes one unit of key. The call must return at this time, with this error or nil.
func (l *lingering) ask(ctx context.Context, key string, at time.Duration, want error) {
	l.calls.Go(func() {
		_, err := take(ctx, l.Queue, key)
		if !errors.Is(err, want) ||
			want == driver.ErrUnavailable && errors.Is(err, driver.ErrOutcomeUnknown) {
			l.t.Errorf("%s: got %v, want %v", key, err, want)
		}
		if got := time.Since(l.start); got != at {
			l.t.Errorf("%s: returned after %v, want %v", key, got, at)
		}
	})
	synctest.Wait()
}

// sent checks what the server has got so far: the keys of each batch.
func (l *lingering) sent(want string) {
	l.t.Helper()
	var batches []string
	for _, held := range l.server.held() {
		var keys []string
		for _, group := range held {
			keys = append(keys, group[strings.LastIndexByte(group, ' ')+1:])
		}
		batches = append(batches, strings.Join(keys, " "))
	}
	if got := strings.Join(batches, ", "); got != want {
		l.t.Errorf("after %v: sent %q, want %q", time.Since(l.start), got, want)
	}
}

// within returns a context that ends after d.
func (l *lingering) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	l.t.Cleanup(cancel)
	return ctx
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestLinger: a batch waits for the time after its first call, and has the calls that arrive
// meanwhile. The next batch waits as long.
func TestLinger(t *testing.T) {
	testLingering(t, func(l *lingering) {
		l.ask(l.t.Context(), "a", testLinger, nil)
		wait(testLinger / 2)
		l.ask(l.t.Context(), "b", testLinger, nil)
		wait(testLinger/2 - 1)
		l.ask(l.t.Context(), "c", testLinger, nil)
		l.sent("")
		wait(1)
		l.sent("a b c")
		l.ask(l.t.Context(), "d", 2*testLinger, nil)
		l.calls.Wait()
		l.sent("a b c, d")
	})
}

// TestLingerFull: a full batch is sent at once.
func TestLingerFull(t *testing.T) {
	testLingering(t, func(l *lingering) {
		for i := range maxGroups {
			l.sent("")
			l.ask(l.t.Context(), fmt.Sprint(i), 0, nil)
		}
		l.calls.Wait()
		l.ask(l.t.Context(), "next", testLinger, nil)
	})
}

// TestLingerBehindOthers: calls that have waited for the batches in flight wait no longer after
// these.
func TestLingerBehindOthers(t *testing.T) {
	testLingering(t, func(l *lingering) {
		resume := l.server.stop()
		l.ask(l.t.Context(), "a", 3*testLinger, nil)
		wait(testLinger)
		l.ask(l.t.Context(), "b", 3*testLinger, nil)
		wait(testLinger)
		l.sent("a, b")
		l.ask(l.t.Context(), "c", 3*testLinger, nil)
		wait(testLinger)
		l.ask(l.t.Context(), "d", 3*testLinger, nil)
		l.sent("a, b")
		resume()
		synctest.Wait()
		l.sent("a, b, c d")
	})
}

// TestLingerNewBehindOthers: calls that have just arrived when the batches in flight are answered
// still wait for more.
func TestLingerNewBehindOthers(t *testing.T) {
	testLingering(t, func(l *lingering) {
		resume := l.server.stop()
		l.ask(l.t.Context(), "a", 5*testLinger/2, nil)
		wait(testLinger)
		l.ask(l.t.Context(), "b", 5*testLinger/2, nil)
		wait(testLinger)
		l.ask(l.t.Context(), "c", 3*testLinger, nil)
		wait(testLinger / 2)
		resume()
		synctest.Wait()
		l.sent("a, b")
		l.ask(l.t.Context(), "d", 3*testLinger, nil)
		l.calls.Wait()
		l.sent("a, b, c d")
	})
}

// TestLingerDeadline: a batch waits for no more than half of the time that one of its callers has.
// Each of them returns by its own deadline, whatever the server does.
func TestLingerDeadline(t *testing.T) {
	testLingering(t, func(l *lingering) {
		l.ask(l.t.Context(), "patient", testLinger/4+testLinger/8, nil)
		wait(testLinger / 4)
		l.ask(l.within(testLinger/4), "hurried", testLinger/4+testLinger/8, nil)
		wait(testLinger/8 - 1)
		l.sent("")
		wait(1)
		l.sent("patient hurried")
	})
	testLingering(t, func(l *lingering) {
		resume := l.server.stop()
		defer resume()
		l.ask(l.within(testLinger), "a", testLinger, driver.ErrOutcomeUnknown)
		wait(testLinger / 2)
		l.sent("a")
		l.calls.Wait()
		// within the tick that has begun with the first call
		l.ask(l.t.Context(), "b", l.Shared.Timeout, driver.ErrOutcomeUnknown)
		wait(testLinger)
		l.sent("a, b")
		l.calls.Wait()
	})
}

// TestLingerAbandoned: a call that is abandoned while its batch lingers returns at once and is not
// sent. The others of the batch are.
func TestLingerAbandoned(t *testing.T) {
	testLingering(t, func(l *lingering) {
		ctx, leave := context.WithCancel(l.t.Context())
		l.ask(ctx, "gone", testLinger/2, driver.ErrUnavailable)
		l.ask(l.t.Context(), "there", testLinger, nil)
		wait(testLinger / 2)
		leave()
		l.calls.Wait()
		l.sent("there")
	})
}
