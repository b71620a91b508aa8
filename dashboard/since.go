package dashboard

import (
	"sync"
	"time"

	"github.com/truewindow/ratelimit/topkeys"
)

// since has since when keys have been among those that are refused most.
type since struct {
	mu   sync.Mutex
	keys map[refusedKey]time.Time
	top  []topkeys.Limit
}

type refusedKey struct{ limit, name string }

// update takes the list of a sketch.
func (s *since) update(now time.Time, top []topkeys.Limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make(map[refusedKey]time.Time)
	for i, l := range top {
		l.Keys = l.Keys[:min(len(l.Keys), shownKeys)]
		top[i] = l
		for _, k := range l.Keys {
			name := refusedKey{l.Name, k.Name}
			keys[name] = now
			if first, ok := s.keys[name]; ok {
				keys[name] = first
			}
		}
	}
	s.keys, s.top = keys, top
}

// shownKeys is how many keys of a limit are shown.
const shownKeys = 10

// A topLimit is a limit and the keys that it refuses most.
type topLimit struct {
	Limit string   `json:"limit"`
	Keys  []topKey `json:"keys"`
}

type topKey struct {
	limit, name string // as they are

	Name  string `json:"name"`
	Count int64  `json:"count"` // of refusals, which decay
	For   int64  `json:"for"`   // seconds
}

func (s *since) list(now time.Time) []topLimit {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]topLimit, 0, len(s.top))
	for _, l := range s.top {
		shown := topLimit{Limit: l.Name}
		for _, k := range l.Keys {
			shown.Keys = append(shown.Keys, topKey{limit: l.Name, name: k.Name,
				Name: text(k.Name), Count: int64(k.Count + 0.5),
				For: int64(now.Sub(s.keys[refusedKey{l.Name, k.Name}]).Seconds())})
		}
		all = append(all, shown)
	}
	return all
}
