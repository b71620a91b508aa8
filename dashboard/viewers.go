package dashboard

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/clientip"
)

const (
	maxViewers = 1000
	writeTime  = 5 * time.Second // for one event
)

// viewers are open pages, each of which gets every snapshot that it has time for. One too many
// replaces the oldest one of the address that has most of them, so that no address keeps others
// out.
type viewers struct {
	mu     sync.Mutex
	open   []viewer // the oldest first
	closed bool
}

type viewer struct {
	events chan []byte
	peer   string
	maySee func(limit string) bool // nil: all
}

// enter returns a channel of events, which is closed when the viewer has to leave, or nil if the
// page is closed.
func (v *viewers) enter(peer string, maySee func(limit string) bool) chan []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	if len(v.open) == maxViewers {
		v.displace()
	}
	events := make(chan []byte, 1)
	v.open = append(v.open, viewer{events, peer, maySee})
	return events
}

func (v *viewers) displace() {
	peers, most := make(map[string]int), 0
	for _, one := range v.open {
		peers[one.peer]++
		most = max(most, peers[one.peer])
	}
	for i, one := range v.open {
		if peers[one.peer] == most {
			close(one.events)
			v.open = slices.Delete(v.open, i, i+1)
			return
		}
	}
}

func (v *viewers) leave(events chan []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = slices.DeleteFunc(v.open, func(one viewer) bool { return one.events == events })
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
	all := s.event()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.open {
		event := all
		if one.maySee != nil {
			event = s.only(one.maySee).event()
		}
		select {
		case one.events <- event:
		default:
		}
	}
}

// event returns a server-sent event with s.
func (s *snapshot) event() []byte {
	var event bytes.Buffer
	event.WriteString("data: ")
	event.Write(s.encode())
	event.WriteString("\n\n")
	return event.Bytes()
}

func (v *viewers) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, one := range v.open {
		close(one.events)
	}
	v.open = nil
}

// viewTime is how long a viewer gets events before it has to connect again, with the rights that it
// has then.
const viewTime = 5 * time.Minute

// events sends snapshots as server-sent events (HTML Living Standard, 9.2) until the viewer leaves.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	peer, _ := clientip.RemoteAddr(r) // "" on a socket
	events := p.viewers.enter(peer, p.limited(r))
	if events == nil {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	defer p.viewers.leave(events)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx sends each event at once
	control := http.NewResponseController(w)
	next := []byte("retry: 2000\n\n")
	end := time.NewTimer(viewTime)
	defer end.Stop()
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
		case <-end.C:
			return
		case next, ok = <-events:
			if !ok {
				return
			}
		}
	}
}
