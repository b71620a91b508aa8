package httpapi

import (
	"math"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/httplimit/problem"
	"github.com/truewindow/ratelimit/topkeys"
)

// TopKeys has the most refused keys of each limit. It is nil without --top-keys.
type TopKeys struct {
	*topkeys.Sketch
	Plain bool
}

// NewTopKeys returns the most refused keys, up to size of each limit, with now as their clock, or
// nil if size is 0. They show the keys themselves if plain, else hashes of them.
func NewTopKeys(size int, plain bool, now func() time.Time) (*TopKeys, error) {
	if size == 0 {
		return nil, nil
	}
	sketch, err := topkeys.New(&topkeys.Options{Size: size, Plain: plain, Now: now})
	if err != nil {
		return nil, err
	}
	return &TopKeys{sketch, plain}, nil
}

// topAnswer is the answer to a request for the most refused keys.
type topAnswer struct {
	HalfLifeMS int64      `json:"half_life_ms"`
	Limits     []topLimit `json:"limits"`
}

type topLimit struct {
	Name     string   `json:"name"`
	Refusals float64  `json:"refusals"`
	Keys     []topKey `json:"keys"`
}

// topKey has either the key or its hash.
type topKey struct {
	Key   string  `json:"key,omitempty"`
	Hash  string  `json:"key_hash,omitempty"`
	Count float64 `json:"count"`
	Error float64 `json:"error"`
}

func (a *API) topKeys(w http.ResponseWriter, r *http.Request) {
	if !MethodIsOneOf(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	if a.top == nil {
		problem.Problem{Status: http.StatusNotFound,
			Detail: "The daemon counts refused keys only with --top-keys=N."}.Write(w)
		return
	}
	answer := topAnswer{
		HalfLifeMS: topkeys.DefaultHalfLife.Milliseconds(), Limits: []topLimit{}}
	caller := access.From(r.Context())
	for _, limit := range a.top.Top() {
		if !caller.MayUse(limit.Name) {
			continue
		}
		l := topLimit{limit.Name, thousandths(limit.Refusals), []topKey{}}
		for _, k := range limit.Keys {
			shown := topKey{Count: thousandths(k.Count), Error: thousandths(k.Error)}
			if a.top.Plain {
				shown.Key = k.Name
			} else {
				shown.Hash = k.Name
			}
			l.Keys = append(l.Keys, shown)
		}
		answer.Limits = append(answer.Limits, l)
	}
	writeJSON(w, http.StatusOK, answer)
}

// thousandths rounds a count to three decimals.
func thousandths(count float64) float64 { return math.Round(count*1000) / 1000 }
