// Command bursts offers the same bursts to four algorithms, and draws what each admits:
//
//	go -C examples run ./bursts >docs/demo.svg
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

const (
	limit   = 20              // units in any window
	window  = 2 * time.Second // fixed windows begin at its multiples
	windows = 5               // how many the picture shows
	units   = 25              // of a burst
	start   = window / 2      // of the picture
)

// bursts are the instants of the bursts. The first three show what is admitted beyond the limit:
// the second is just after the edge of a window, and the third just before the first leaves the
// trailing window. At the fourth nothing counts any more, and the fifth is more than a window
// later: an exact log admits as many units of each as the limit.
var bursts = []time.Duration{
	start + window*35/100,
	start + window*56/100,
	start + window*126/100,
	start + window*255/100,
	start + window*367/100,
}

// series is what an algorithm admits.
type series struct {
	Name     string
	Admitted []int // units of each burst
}

func main() {
	all, err := decide(context.Background())
	if err == nil {
		err = draw(os.Stdout, all)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// decide offers the bursts to each algorithm, on a clock that stands still during a burst.
func decide(ctx context.Context) ([]series, error) {
	var now time.Duration
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 {
		return now.Microseconds()
	}})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	l := ratelimit.Limit{Name: "demo", Max: limit, Window: window}
	var all []series
	for _, a := range []struct {
		name      string
		algorithm ratelimit.Algorithm
	}{
		{"Fixed window", algorithm.FixedWindow(l)},
		{"Sliding window counter", algorithm.SlidingWindowCounter(l)},
		{"Token bucket", algorithm.GCRA(l)},
		{"Exact log", algorithm.SlidingLog(l)},
	} {
		limiter, err := ratelimit.New(store, a.algorithm)
		if err != nil {
			return nil, err
		}
		s := series{Name: a.name}
		for _, now = range bursts {
			admitted := 0
			for range units {
				res, err := limiter.Allow(ctx, a.name)
				if err != nil {
					return nil, err
				}
				if res.Allowed {
					admitted++
				}
			}
			s.Admitted = append(s.Admitted, admitted)
		}
		all = append(all, s)
	}
	return all, nil
}

// trailing returns the number of units admitted in the window that ends with t.
func (s series) trailing(t time.Duration) (n int) {
	for i, at := range bursts {
		if t-window < at && at <= t {
			n += s.Admitted[i]
		}
	}
	return n
}

// Most returns the most units admitted in any window.
func (s series) Most() (most int) {
	for _, at := range bursts { // the count grows only at a burst
		most = max(most, s.trailing(at))
	}
	return most
}

// Wrong returns how many units were refused that an exact log with the same admissions would have
// admitted.
func (s series) Wrong() (n int) {
	for i, at := range bursts {
		if s.trailing(at) < limit {
			n += units - s.Admitted[i]
		}
	}
	return n
}

// Figures are the numbers of units that were offered, admitted and wrongly refused.
func (s series) Figures() string {
	admitted := 0
	for _, n := range s.Admitted {
		admitted += n
	}
	return fmt.Sprintf("%d of %d admitted, %d refused wrongly",
		admitted, units*len(bursts), s.Wrong())
}

// Quotient is Most as a multiple of the limit.
func (s series) Quotient() string { return fmt.Sprintf("%.2f", float64(s.Most())/limit) }

// Area is the outline of the trailing count as the attribute d of a path.
func (s series) Area() string {
	var steps []time.Duration
	for _, at := range bursts {
		steps = append(steps, at, at+window)
	}
	slices.Sort(steps)
	var d strings.Builder
	fmt.Fprintf(&d, "M0 %d", plotHeight)
	for _, t := range steps {
		if t < start+windows*window {
			fmt.Fprintf(&d, "H%.1fV%.1f", x(t), y(s.trailing(t)))
		}
	}
	fmt.Fprintf(&d, "H%dV%dZ", plotWidth, plotHeight)
	return d.String()
}

// Sizes of the picture in pixels, as in its template.
const plotWidth, plotHeight, barHeight = 704, 72, 16

// x returns where an instant is in a plot.
func x(t time.Duration) float64 {
	return plotWidth * float64(t-start) / float64(windows*window)
}

// y returns where a number of units is in a plot, in which twice the limit is at the top.
func y(units int) float64 { return plotHeight * (1 - float64(units)/(2*limit)) }

// MostY is the base line of the label of Most.
func (s series) MostY() float64 { return y(s.Most()) + 4 }

// A bar shows how much of a burst was admitted, below the plot.
type bar struct {
	N              int
	X, Top, Height float64
	LabelX         float64
	Anchor         string // of the label: "start" is on the right of the bar
}

// Bars returns the bar of each burst.
func (s series) Bars() (bars []bar) {
	for i, n := range s.Admitted {
		center, height := x(bursts[i]), barHeight*float64(n)/units
		b := bar{n, center - 2.5, plotHeight + 4 + barHeight - height, height, center + 8, "start"}
		if i == 0 { // the next bar is near
			b.LabelX, b.Anchor = center-8, "end"
		}
		bars = append(bars, b)
	}
	return bars
}

//go:embed picture.svg
var picture string

// draw writes the picture, for light and dark backgrounds.
func draw(w io.Writer, all []series) error {
	t, err := template.New("picture").Funcs(template.FuncMap{
		"panel": func(i int) int { return 116 + 142*i },
		"px":    func(v float64) string { return fmt.Sprintf("%.1f", v) },
	}).Parse(picture)
	if err != nil {
		return err
	}
	return t.Execute(w, all)
}
