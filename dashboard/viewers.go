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
	choice choice
	maySee func(limit string) bool // nil: all
}

// A tick is what a viewer gets each second: the numbers of the list.
type tick struct {
	At     int64 `json:"at"` // in ms since the epoch
	Limits []row `json:"limits"`
}

// enter returns a channel of events, which is closed when the viewer has to leave, or nil if the
// page is closed.
func (v *viewers) enter(peer string, c choice, maySee func(limit string) bool) chan []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	if len(v.open) == maxViewers {
		v.displace()
	}
	events := make(chan []byte, 1)
	v.open = append(v.open, viewer{events, peer, c, maySee})
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

// send sends events to all viewers but those that have not read the one before. Those who may see
// all limits in the same range have the same event.
func (v *viewers) send(event func(choice, func(limit string) bool) []byte) {
	v.mu.Lock()
	open := slices.Clone(v.open)
	v.mu.Unlock()
	shared := make(map[*timeRange][]byte)
	events := make(map[chan []byte][]byte)
	for _, one := range open {
		own := shared[one.choice.Range]
		if own == nil || one.maySee != nil {
			own = event(one.choice, one.maySee)
		}
		if one.maySee == nil {
			shared[one.choice.Range] = own
		}
		events[one.events] = own
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.open {
		own, ok := events[one.events]
		if !ok {
			continue // it has entered meanwhile
		}
		select {
		case one.events <- own:
		default:
		}
	}
}

// event returns a server-sent event with v.
func event(v any) []byte {
	var event bytes.Buffer
	event.WriteString("data: ")
	event.Write(encode(v))
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
	events := p.viewers.enter(peer, choiceOf(r.URL), p.limited(r))
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
