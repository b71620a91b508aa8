package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
)

// workerEnv names the environment variable that holds the config of a worker process.
const workerEnv = "TOKENBUDGET_WORKER"

// An event is what a worker reports: a reservation, the end of its call, its settlement, or a
// demand that the store left undecided.
type event struct {
	Call     uint64 // random number of the call
	At       int64  // the time before the reservation, in µs
	Until    int64  // and after it
	Reserved int64
	Used     int64 // 0 until the call has ended
	Settled  bool
	Err      string
}

// work runs the workers of one process until its standard input ends, and returns the exit code.
func work(task string) int {
	var c config
	if err := json.Unmarshal([]byte(task), &c); err != nil {
		log.Print(err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	b, err := openBudget(ctx, c)
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = b.store.Close() }()
	w := worker{config: c, budget: b, out: json.NewEncoder(os.Stdout)}
	var all sync.WaitGroup
	for range c.Workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := w.call(ctx); err != nil && ctx.Err() == nil {
					w.tell(event{Err: err.Error()})
					w.sleep(ctx, w.Call)
				}
			}
		})
	}
	all.Wait()
	return 0
}

// worker is the state that the workers of a process share.
type worker struct {
	config
	*budget
	mu  sync.Mutex
	out *json.Encoder
}

// call reserves, makes a call and commits. After a refusal it waits.
func (w *worker) call(ctx context.Context) error {
	mean := max(2, w.Tokens/2500)
	estimate := mean/2 + rand.Int64N(mean)
	at := time.Now().UnixMicro()
	r, err := ratelimit.ReserveAll(ctx, w.claims(estimate)...)
	if err != nil {
		return err
	}
	if !r.Allowed() {
		// A random delay keeps callers that were refused together apart.
		w.sleep(ctx, r.Result().RetryAfter+rand.N(w.Call))
		return nil
	}
	e := event{Call: rand.Uint64(), At: at, Until: time.Now().UnixMicro(), Reserved: estimate}
	w.tell(e)
	ctx = context.WithoutCancel(ctx) // a call that has begun is finished and charged
	w.sleep(ctx, w.Call/2+rand.N(w.Call))
	e.Used = estimate/2 + rand.Int64N(estimate+1)
	w.tell(e)
	settle := w.commit
	if rand.IntN(10) == 0 {
		settle = w.commitTwice
	}
	if err := settle(ctx, r, e.Used); err != nil {
		return err
	}
	e.Settled = true
	w.tell(e)
	return nil
}

// commit retries for as long as the units are certain to be held. It may be repeated after any
// error.
func (w *worker) commit(ctx context.Context, r *ratelimit.Reservation, used int64) error {
	for end := time.Now().Add(w.Timeout); ; w.sleep(ctx, w.Call) {
		err := r.CommitAll(ctx, ratelimit.Claim{Limiter: w.tokens, N: used},
			ratelimit.Claim{Limiter: w.money, N: price(used)})
		if err == nil || errors.Is(err, ratelimit.ErrNotHeld) || time.Now().After(end) {
			return err
		}
	}
}

// commitTwice settles a reservation twice, as other processes would that get its token in a
// message. The second settlement must find nothing.
func (w *worker) commitTwice(ctx context.Context, r *ratelimit.Reservation, used int64) error {
	text, err := r.Token()
	if err != nil {
		return err
	}
	for again := range 2 {
		r, err := ratelimit.Resume(text, w.tokens, w.money, w.calls)
		if err != nil {
			return err
		}
		err = w.commit(ctx, r, used)
		switch {
		case again == 0 && err != nil:
			return err
		case again == 1 && err == nil:
			return errors.New("a second settlement was recorded")
		}
	}
	return nil
}

func (w *worker) tell(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e)
}

func (w *worker) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
