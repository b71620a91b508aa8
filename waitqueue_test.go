package ratelimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestWaitQueueFull: as many calls can wait for a key as the documentation of WaitN says, and no
// more.
func TestWaitQueueFull(t *testing.T) {
	w := newWaitQueues()
	if !w.enter("k") || w.enter("k") {
		t.Fatal("the first is not the first")
	}
	var last *waiter
	for range 10_000 - 1 {
		last = &waiter{n: 1, turn: make(chan error, 1)}
		if err := w.join("k", last); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context()) // so that one that queues fails as well
	cancel()
	if err := w.await(ended, "k", 1, nil); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one too many: %v, want ErrQueueFull", err)
	}
	if !w.enter("another") {
		t.Error("a full queue blocks another key")
	}
	if !w.remove("k", last) || w.join("k", last) != nil {
		t.Error("the queue has no room after a call has left it")
	}
}

// TestWaitQueueKeys: a queue that outlives its first call does not hold the memory of that call's
// key, and no queue is left when no call waits.
func TestWaitQueueKeys(t *testing.T) {
	w := newWaitQueues()
	key := strings.Repeat("k", 10)
	held := func() string {
		w.enterLone()
		for held := range w.byKey {
			return held
		}
		return ""
	}
	w.enter(key)
	self := &waiter{n: 1, turn: make(chan error, 1)}
	if err := w.join(key, self); err != nil || len(self.turn) != 0 {
		t.Fatalf("%v, %d", err, len(self.turn))
	}
	w.leave(key)
	if len(self.turn) != 1 || held() != key || unsafe.StringData(held()) == unsafe.StringData(key) {
		t.Errorf("the queue of the second call holds %q, memory of the first", held())
	}
	w.leave(key)
	if held() != "" {
		t.Errorf("a queue without calls: %q", held())
	}

	w.enter(key)
	w.refuse(key, 1, make([]Result, 1), time.Second)
	if unsafe.StringData(held()) == unsafe.StringData(key) {
		t.Error("a queue with a refusal holds memory of the first call")
	}
	w.leave(key)

	// A call that finds the queue gone when it joins is the first.
	if err := w.await(t.Context(), key, 1, nil); err != nil || w.enter(key) {
		t.Errorf("after a queue is gone: %v", err)
	}
	w.leave(key)
	if !w.enter(key) {
		t.Error("the queue is left behind")
	}
}

// TestWaitQueueTurnOfTheEnded: a turn that comes when the context has ended is passed on.
func TestWaitQueueTurnOfTheEnded(t *testing.T) {
	for range 100 { // because select chooses at random
		w := newWaitQueues()
		w.enter("k")
		ctx, cancel := context.WithCancel(t.Context())
		self, next := &waiter{n: 1, turn: make(chan error, 1)},
			&waiter{n: 1, turn: make(chan error, 1)}
		for _, one := range []*waiter{self, next} {
			if err := w.join("k", one); err != nil {
				t.Fatal(err)
			}
		}
		w.leave("k")
		cancel()
		if err := w.awaitTurn(ctx, "k", self); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want the error of the context", err)
		}
		if len(next.turn) != 1 {
			t.Fatal("the next has not got its turn")
		}
	}
}

// TestBackoff: pauses grow, differ, and are never longer than a second.
func TestBackoff(t *testing.T) {
	for failures := range 100 {
		most := time.Second
		if failures < 7 {
			most = 10 * time.Millisecond << failures
		}
		seen := make(map[time.Duration]bool)
		for range 20 {
			d := backoff(failures)
			if d > most || d <= most/2 {
				t.Errorf("after %d failures: %v, want up to %v", failures, d, most)
			}
			seen[d] = true
		}
		if len(seen) == 1 {
			t.Errorf("after %d failures all pauses are the same", failures)
		}
	}
}
