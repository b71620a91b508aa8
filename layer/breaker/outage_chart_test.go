package breaker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/internal/svg"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// The outage of the chart: three processes share a server, which hangs for a while. Together they
// request twice the limit.
const (
	processes   = 3
	outageMax   = 60
	outageAsks  = 250 * time.Millisecond // from one call of a process to its next
	outageLasts = 60 * time.Second
	outageFrom  = 20 * time.Second
	outageTo    = 40 * time.Second
)

var outageLimit = ratelimit.Limit{Name: "page", Max: outageMax, Window: 10 * time.Second}

// hangsAWhile is a store that answers nothing during the outage: a take ends after 100 ms, as on a
// server. A peek takes longer, so that no two calls end at the same instant and each run is the
// same.
type hangsAWhile struct {
	ratelimit.Store
	began time.Time
}

func (s hangsAWhile) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if at := time.Since(s.began); at >= outageFrom && at < outageTo {
		timeout := 100 * time.Millisecond
		if d.Op == ratelimit.OpPeek {
			timeout += 7 * time.Millisecond
		}
		time.Sleep(timeout)
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return s.Store.Take(ctx, d)
}

// outcome is what callers got with one policy.
type outcome struct {
	name     string
	admitted []time.Duration // when, since the beginning, in order
	during   int             // how many of them in the outage
	failed   int
	slow     int // calls that waited for the timeout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// trailing returns the units admitted in the window that ends at a time.
func (o outcome) trailing(end time.Duration) (n int) {
	for _, at := range o.admitted {
		if at <= end && at > end-outageLimit.Window {
			n++
		}
	}
	return n
}

func (o outcome) most() (n int) {
	for _, at := range o.admitted {
		n = max(n, o.trailing(at))
	}
	return n
}

// playOutage plays the outage with a policy. local says whether the processes have a
// layer.Degraded.
func playOutage(t *testing.T, name string, policy ratelimit.Policy, local bool) outcome {
	got := outcome{name: name}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		memory, err := memorystore.New(nil)
		must(t, err)
		defer memory.Close()
		server := hangsAWhile{memory, time.Now()}
		for i := range processes {
			guarded, err := breaker.New(server, nil)
			must(t, err)
			store := ratelimit.Store(guarded)
			if local {
				degraded, err := layer.NewDegraded(guarded,
					&layer.DegradedOptions{Instances: processes})
				must(t, err)
				defer degraded.Close()
				store = degraded
			}
			limiter, err := ratelimit.New(store, algorithm.SlidingLog(outageLimit))
			must(t, err)
			limiter = limiter.With(policy)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * outageAsks / processes)
				for time.Since(server.began) < outageLasts {
					next := time.Now().Add(outageAsks)
					asked := time.Since(server.began)
					res, err := limiter.Allow(t.Context(), "key")
					at := time.Since(server.began)
					mu.Lock()
					switch {
					case err != nil && !errors.Is(err, ratelimit.ErrUnavailable):
						t.Error(err)
					case err != nil:
						got.failed++
					case res.Allowed:
						got.admitted = append(got.admitted, at)
						if at >= outageFrom && at < outageTo {
							got.during++
						}
					}
					if at-asked >= 100*time.Millisecond {
						got.slow++
					}
					mu.Unlock()
					time.Sleep(time.Until(next))
				}
			})
		}
		wg.Wait()
	})
	return got
}

// TestOutageChart plays an outage with each policy, and checks that docs/charts/outage.svg shows
// it. RATELIMIT_CHARTS is the directory to write the chart to.
func TestOutageChart(t *testing.T) {
	closed := playOutage(t, "FailClosed", ratelimit.FailClosed, false)
	open := playOutage(t, "FailOpen", ratelimit.FailOpen, false)
	local := playOutage(t, "layer.Degraded", ratelimit.FailClosed, true)
	if closed.most() > outageMax || closed.during > processes || closed.failed == 0 {
		t.Errorf("closed: %d at most, %d during, %d failed",
			closed.most(), closed.during, closed.failed)
	}
	if open.most() <= outageMax || open.failed != 0 {
		t.Errorf("open: %d at most, %d failed", open.most(), open.failed)
	}
	if local.most() > 2*outageMax || local.during < outageMax || local.failed != 0 {
		t.Errorf("local: %d at most, %d during, %d failed",
			local.most(), local.during, local.failed)
	}

	var b bytes.Buffer
	_, err := outagePicture([]outcome{closed, open, local}).WriteTo(&b)
	must(t, err)
	const name = "outage.svg"
	if dir := os.Getenv("RATELIMIT_CHARTS"); dir != "" {
		must(t, os.WriteFile(dir+"/"+name, b.Bytes(), 0o644))
	}
	file, err := os.ReadFile("../../docs/charts/" + name)
	must(t, err)
	if !bytes.Equal(file, b.Bytes()) {
		t.Errorf("docs/charts/%s does not show what happened; run make charts", name)
	}
}

// outagePicture draws for each policy the units admitted in the trailing window over time.
func outagePicture(outcomes []outcome) *svg.Picture {
	const left, width, top, step, height = 60.0, 700.0, 116.0, 150.0, 96.0
	x := func(at time.Duration) float64 {
		return width * at.Seconds() / outageLasts.Seconds()
	}
	var words []string
	for _, o := range outcomes {
		words = append(words, o.words())
	}
	p := svg.New(int(top+step*float64(len(outcomes)))-20, "A server hangs for 20 seconds",
		strings.Join(words, ". ")+".")
	p.Text("small", 24, 55, "start", fmt.Sprintf("Units admitted in the trailing %.0f s, of "+
		"%d processes that together request twice the limit.",
		outageLimit.Window.Seconds(), processes))
	p.Printf(`<g transform="translate(%.0f 0)">`, left)
	for i, o := range outcomes {
		base := top + step*float64(i) + height
		y := func(n int) float64 { return base - height*float64(n)/(2*outageMax) }
		p.Text("name", 24-left, base-height-12, "start", o.name)
		p.Text("small", width, base-height-12, "end", o.words())
		for _, at := range []time.Duration{outageFrom, outageTo} {
			p.Printf(`<path class="edge" d="M%.1f %.1fV%.1f"/>`, x(at), base-height, base)
		}
		below, above := svg.NewSteps(base), svg.NewSteps(y(outageMax))
		for at := time.Duration(0); at < outageLasts; at += outageAsks {
			n := o.trailing(at)
			below.To(x(at), y(min(n, outageMax)))
			above.To(x(at), y(max(n, outageMax)))
		}
		p.Printf(`<path class="area" d="%s"/>`, below.End(x(outageLasts)))
		p.Printf(`<path class="alert" d="%s"/>`, above.End(x(outageLasts)))
		p.Printf(`<path class="limit" d="M0 %.1fH%.1f"/>`, y(outageMax), width)
		p.Printf(`<path class="axis" d="M0 %.1fH%.1f"/>`, base, width)
		p.Text("small", -8, y(outageMax)+4, "end", fmt.Sprint(outageMax))
		p.Text("small", -8, base+4, "end", "0")
		p.Text("small", x(outageFrom), base+16, "middle", "server hangs")
		p.Text("small", x(outageTo), base+16, "middle", "server answers")
	}
	p.Printf("</g>")
	return p
}

func (o outcome) words() string {
	return fmt.Sprintf("%d admitted in the outage, at most %d in any window; "+
		"%d calls failed, %d waited for the timeout", o.during, o.most(), o.failed, o.slow)
}
