package envoy

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxWatches is how many streams there may be, of all connections. One more ends the oldest.
	maxWatches = 256
	// maxReflections is how many of them may be of reflection, whose answers are large: the library
	// keeps them until clients read them. One more is refused, and each ends after reflectionTime.
	maxReflections = 16
	reflectionTime = time.Minute
)

// watches are the calls that last until their client ends them: Watch of the health service, and
// reflection.
type watches struct {
	mu    sync.Mutex
	open  []*watch // the oldest first
	ended bool

	reflections atomic.Int64
}

type watch struct {
	grpc.ServerStream
	ctx context.Context
	end context.CancelFunc
}

func (w *watch) Context() context.Context { return w.ctx }

var errWatch = status.Error(codes.Unavailable, "the service stops, or has too many streams")

// intercept is a [grpc.StreamServerInterceptor].
func (w *watches) intercept(
	service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	own := &watch{ServerStream: stream}
	own.ctx, own.end = context.WithCancel(stream.Context())
	defer own.end()
	room, handled := true, func() {}
	if strings.HasPrefix(info.FullMethod, "/grpc.reflection.") {
		defer time.AfterFunc(reflectionTime, own.end).Stop()
		room = w.reflections.Add(1) <= maxReflections
		handled = func() { w.reflections.Add(-1) }
	}
	if !room || !w.enter(own) {
		handled()
		return errWatch
	}
	defer w.leave(own)
	done := make(chan error, 1)
	go func() {
		defer handled()
		done <- handle(service, own)
	}()
	var err error
	select {
	case err = <-done:
	case <-own.ctx.Done(): // the handler may wait for its client, until this returns
		err = status.FromContextError(own.ctx.Err()).Err()
	}
	if own.ctx.Err() != nil && stream.Context().Err() == nil {
		return errWatch
	}
	return err
}

func (w *watches) enter(own *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	if len(w.open) == maxWatches {
		w.open[0].end()
		w.open = w.open[1:]
	}
	w.open = append(w.open, own)
	return true
}

func (w *watches) leave(own *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.open {
		if other == own {
			w.open = append(w.open[:i], w.open[i+1:]...)
			return
		}
	}
}

// end ends all streams, and lets none begin.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, own := range w.open {
		own.end()
	}
}
