package transactional

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// mostAtOnce is how many transactions with the same key may be in progress: one that has the lock,
// and one that waits for it. With one alone, the conformance suite would not see that an author has
// forgotten the lock.
const mostAtOnce = 2

// queue is where the callers of one key wait. In the database each would have a connection. A call
// does not wait for older ones that wait for another key. So that calls with several busy keys have
// their turn too, one of the two places of a key may be kept for such a call while it waits for
// another key. It gets the places in the order of its keys, so no two wait for each other.
type queue struct {
	mu   sync.Mutex
	keys map[string]*line // of the calls that have not left
}

// line is the calls that have one key.
type line struct {
	calls    int       // that have not left
	begun    int       // of calls, those that have a place: their turn, or one that is kept
	keptFor  *turn     // a call with several keys, until it leaves; or nil
	several  []*turn   // of those that wait, the ones with several keys, the oldest first
	waiting  list.List // of *turn, the oldest first
	late     list.List // of those that have waited for half of their time
	answered time.Time // when the database last answered a call
}

// turn is the place of a call in the lines of its keys.
type turn struct {
	queue  *queue
	began  time.Time
	keys   []string // distinct
	lines  []*line  // of the keys
	places []*list.Element
	kept   int           // of lines, the first ones that keep a place for the call
	ready  chan struct{} // closed when it is the call's turn; nil if the call need not wait
	left   bool
}

// enter returns the place of a new call.
func (q *queue) enter(keys []string) *turn {
	t := &turn{queue: q, began: time.Now(), keys: keys, lines: make([]*line, len(keys))}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = make(map[string]*line)
	}
	for i, key := range keys {
		l := q.keys[key]
		if l == nil {
			l = new(line)
			q.keys[key] = l
		}
		l.calls++
		t.lines[i] = l
	}
	if t.beginLocked() {
		return t
	}
	t.ready = make(chan struct{})
	t.places = make([]*list.Element, len(keys))
	for i, l := range t.lines {
		t.places[i] = l.waiting.PushBack(t)
		if len(keys) > 1 {
			l.several = append(l.several, t)
		}
	}
	return t
}

// beginLocked reports whether it is t's turn, and if so gives it the turn.
func (t *turn) beginLocked() bool {
	rest := t.lines[t.kept:]
	for _, l := range rest {
		if l.begun >= mostAtOnce {
			return false
		}
	}
	for _, l := range rest {
		l.begun++
	}
	return true
}

// keepLocked keeps a place for t in its next lines, as far as they have one.
func (t *turn) keepLocked() {
	for _, l := range t.lines[t.kept:] {
		if l.begun >= mostAtOnce || l.keptFor != nil {
			return
		}
		l.keptFor = t
		l.begun++
		t.kept++
	}
}

// wait waits for the turn, and returns for how long. The error is that of ctx, or DeadlineExceeded
// after timeout.
//
// After half of its time a call lets younger ones go first. While more calls arrive than the
// database decides, each would otherwise have its turn when the rest of its time is too short.
func (t *turn) wait(ctx context.Context, timeout time.Duration) (waited time.Duration, err error) {
	if t.ready == nil {
		return 0, nil
	}
	half := timeout / 2
	if at, ok := ctx.Deadline(); ok {
		half = min(half, time.Until(at)/2)
	}
	timer := time.NewTimer(half)
	defer timer.Stop()
	for late := false; ; late = true {
		select {
		case <-t.ready:
			return time.Since(t.began), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-timer.C:
			if late {
				return 0, context.DeadlineExceeded
			}
			t.letOthersFirst()
			timer.Reset(timeout - half)
		}
	}
}

func (t *turn) letOthersFirst() {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	for i, e := range t.places {
		t.lines[i].waiting.Remove(e)
		t.places[i] = t.lines[i].late.PushBack(t)
	}
}

// leave ends the turn, or the wait for it. answered is whether the database has answered the call.
// Only the first leave counts.
func (t *turn) leave(answered bool) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	for i, l := range t.lines {
		if l.calls--; l.calls == 0 {
			delete(t.queue.keys, t.keys[i])
		}
		if answered {
			l.answered = time.Now()
		}
	}
	begun := t.lines
	if t.places != nil { // it still waits
		t.stopWaitingLocked()
		begun = t.lines[:t.kept]
	}
	for _, l := range begun {
		l.begun--
		if l.keptFor == t {
			l.keptFor = nil
		}
	}
	for _, l := range begun {
		l.nextLocked()
	}
}

// nextLocked keeps a place for the oldest call with several keys that needs one, and gives the turn
// to the oldest calls of l that need not wait for another key.
func (l *line) nextLocked() {
	for _, t := range l.several {
		if l.begun >= mostAtOnce || l.keptFor != nil {
			break
		}
		if t.lines[t.kept] != l {
			continue
		}
		if t.keepLocked(); t.beginLocked() {
			t.startLocked()
			break // several has changed
		}
	}
	for _, calls := range []*list.List{&l.waiting, &l.late} {
		var next *list.Element
		for e := calls.Front(); e != nil && l.begun < mostAtOnce; e = next {
			next = e.Next()
			if t := e.Value.(*turn); t.beginLocked() {
				t.startLocked()
			}
		}
	}
}

// startLocked lets a call that waits for its turn go on.
func (t *turn) startLocked() {
	t.stopWaitingLocked()
	close(t.ready)
}

func (t *turn) stopWaitingLocked() {
	for i, l := range t.lines {
		if len(t.lines) > 1 {
			l.several = slices.DeleteFunc(l.several, func(other *turn) bool { return other == t })
		}
		l.waiting.Remove(t.places[i]) // from the list that it is in
		l.late.Remove(t.places[i])
	}
	t.places = nil
}

// contended reports whether the call was not decided because of other calls with its keys: whether
// the database has answered one of them in the second half of the time since the call began.
// Otherwise it is the database that is slow.
func (t *turn) contended() bool {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	now := time.Now()
	half := now.Add(-now.Sub(t.began) / 2)
	for _, l := range t.lines {
		if l.answered.After(half) {
			return true
		}
	}
	return false
}
