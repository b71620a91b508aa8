package linear

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// cell is one state. If it loses an update, its first two takes read the state before either of
// them writes it.
type cell struct {
	mu    sync.Mutex
	state []byte
	loses bool
	reads int
	both  sync.WaitGroup // the first two reads
}

func (c *cell) take(d driver.Demand) driver.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, keep, res := d.Step(bytes.Clone(c.state), now)
	if c.reads++; c.loses && c.reads <= 2 {
		c.mu.Unlock()
		c.both.Done()
		c.both.Wait()
		c.mu.Lock()
	}
	if keep > 0 {
		c.state = next
	}
	return res
}

// record has eight goroutines take at once, twenty times each.
func record(c *cell) (history []conformance.Operation) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	a := algorithm.SlidingLog(driver.PerMinute("minute", 100))
	for client := range 8 {
		wg.Go(func() {
			for range 20 {
				op := conformance.Operation{Client: client, Now: now,
					Demands: []driver.Demand{take(a)}, Call: time.Since(begin)}
				op.Results = []driver.Result{c.take(op.Demands[0])}
				op.Return = time.Since(begin)
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func TestCheckRecorded(t *testing.T) {
	if err := Check(record(new(cell))); err != nil {
		t.Errorf("a state behind a lock: %v", err)
	}
	losing := &cell{loses: true}
	losing.both.Add(2)
	if err := Check(record(losing)); !errors.Is(err, ErrNotLinearizable) {
		t.Errorf("a state that loses an update: got %v, want %v", err, ErrNotLinearizable)
	}
}
