package dashboard

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

const (
	maxViewers = 1000
	writeTime  = 5 * time.Second // for one event
)

// viewers are open pages, each of which gets every snapshot that it has time for.
type viewers struct {
	mu     sync.Mutex
	open   map[chan []byte]bool
	closed bool
}

// enter returns a channel of events, or nil if there are too many viewers or the page is closed,
// which closes the channel.
func (v *viewers) enter() chan []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || len(v.open) >= maxViewers {
		return nil
	}
	if v.open == nil {
		v.open = make(map[chan []byte]bool)
	}
	events := make(chan []byte, 1)
	v.open[events] = true
	return events
}

func (v *viewers) leave(events chan []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, events)
}

// ended reports whether the page is closed.
func (v *viewers) ended() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

func (v *viewers) any() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.open) > 0
}

// send sends a snapshot to all viewers but those that have not read the one before.
func (v *viewers) send(s *snapshot) {
	var event bytes.Buffer
	event.WriteString("data: ")
	event.Write(s.encode())
	event.WriteString("\n\n")
	v.mu.Lock()
	defer v.mu.Unlock()
	for events := range v.open {
		select {
		case events <- event.Bytes():
		default:
		}
	}
}

func (v *viewers) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for events := range v.open {
		close(events)
	}
	clear(v.open)
}

// events sends snapshots as server-sent events (HTML Living Standard, 9.2) until the viewer leaves.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	events := p.viewers.enter()
	if events == nil {
		http.Error(w, "too many viewers, or closed", http.StatusServiceUnavailable)
		return
	}
	defer p.viewers.leave(events)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx sends each event at once
	control := http.NewResponseController(w)
	next := []byte("retry: 2000\n\n")
	for {
		// A server without deadlines cannot end a viewer that stops reading; the program may.
		_ = control.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := w.Write(next); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		var ok bool
		select {
		case <-r.Context().Done():
			return
		case next, ok = <-events:
			if !ok {
				return
			}
		}
	}
}
