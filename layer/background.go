package layer

import (
	"context"
	"sync"
)

// background has goroutines that a layer's Close waits for.
type background struct {
	ctx     context.Context // ends with stop
	cancel  context.CancelFunc
	mu      sync.Mutex // so that nothing enters after stop
	running sync.WaitGroup
}

func newBackground() *background {
	b := new(background)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// start runs f in a goroutine, or reports false after stop.
func (b *background) start(f func()) bool {
	if !b.enter() {
		return false
	}
	go func() {
		defer b.leave()
		f()
	}()
	return true
}

// enter counts the calling goroutine until it calls leave, or reports false after stop.
func (b *background) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.running.Add(1)
	return true
}

func (b *background) leave() { b.running.Done() }

// stop ends ctx, so that nothing starts any more. Call wait to wait for what still runs.
func (b *background) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel()
}

func (b *background) wait() { b.running.Wait() }
