// Package dashboard is a web page that shows what limits do now and did in the last hour: what
// they admit and refuse, which keys they refuse most, and what is left for one key.
//
//	page, err := dashboard.New(&dashboard.Options{Store: store, Limits: limiter.Algorithms})
//	…
//	limiter = limiter.WithObserver(page.Observe)
//	mux.Handle("/limits/", page)
//
// Mount it under any prefix that ends in a slash, behind an authentication of your own: whoever
// reaches the page sees the names of limits, the numbers of their decisions, and what is left for
// a key that they know. It needs no other file, no build step and no cookie, and works without
// JavaScript too.
package dashboard

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/topkeys"
)

// Options are the options of [New]. The zero Options show what [Page.Observe] sees.
type Options struct {
	// Store and Limits are those of the limiters, such as limiter.Algorithms. A key is looked up
	// under all of them. Without a Store no key can be looked up. Limits is called only while
	// somebody looks at the page.
	Store  ratelimit.Store
	Limits func() []ratelimit.Algorithm
	// Find, if not nil, returns what to look up for a text that a viewer has typed, in place of the
	// text as a key under all Limits. Its error is shown.
	Find func(text string) ([]Subject, error)

	// Top has the keys that are refused most, which the page shows by their names in it; nil shows
	// none. Its Observe is an observer of its own.
	Top *topkeys.Sketch
	// State, if not nil, returns lines about the store, such as the state of a breaker. It is
	// called for each load of the page, and once a second while a page is open.
	State func() []Line
	// Rule, if not nil, returns what else is known of a limit, by its name.
	Rule func(limit string) Rule
	// Try, if not nil, returns a command that makes a decision, for a page that has none to show.
	Try func() string

	// MayWrite reports whether the sender of a request may reset and block keys and end holds. Nil
	// means that nobody may. It is asked to show the actions, and again, with the path /act, when
	// one is sent. A rule for a path in front of the page does not replace it: each path below the
	// prefix that ends in /act is that of an action. Forms that other sites send are refused.
	MayWrite func(*http.Request) bool
	// Log gets a line for each of these actions, without the key. Nil means [slog.Default].
	Log *slog.Logger
	// Acting, if not nil, is called before each of these actions, in place of a line in Log. What
	// it returns is called after it, with the status of the answer, and the error if it was not
	// done.
	Acting func(*http.Request, Action) (acted func(status int, err error))

	// Only returns which limits the sender of a request may see, and act under, by their names; nil
	// means all, as if Only is nil. Who may not see all sees no State.
	Only func(*http.Request) (maySee func(limit string) bool)
}

// An Action is a change that a viewer has confirmed.
type Action struct {
	Name     string        // reset, block or release
	Subjects []Subject     // what it is done to
	For      time.Duration // of a block
}

// A Line is something that the page shows, and whether it is a problem. A time in it, such as
// 2026-11-30T14:02:00Z, is shown in the viewer's zone.
type Line struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Says is the line as a sentence, for the top of the page. A line without it is at the top only
	// if it is Bad.
	Says string `json:"says,omitempty"`
	Bad  bool   `json:"bad,omitempty"` // somebody has to act
}

// A Subject is a key under a limit.
type Subject struct {
	Limit ratelimit.Algorithm
	Key   string
}

// A Page is an [http.Handler] that serves the page, and the observer of the limiters that it shows.
// It is safe for concurrent use. It keeps an hour of at most 1,000 limits, in about 46 KB for each;
// all further limits are one, with the name "_other". Create one with [New].
type Page struct {
	opts    Options
	history timeline
	refused since
	viewers viewers
	token   string // of forms, which pages of other origins cannot read
	cross   http.CrossOriginProtection
	mux     *http.ServeMux

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a page; nil options are the zero Options. Close it when it is no longer needed. An
// error wraps [ratelimit.ErrInvalid].
func New(opts *Options) (*Page, error) {
	p := &Page{token: rand.Text()}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Store == nil && (p.opts.Limits != nil || p.opts.Find != nil) {
		return nil, fmt.Errorf("%w options: Limits or Find without a Store", ratelimit.ErrInvalid)
	}
	if p.opts.Limits == nil {
		p.opts.Limits = func() []ratelimit.Algorithm { return nil }
	}
	if p.opts.Find == nil {
		p.opts.Find = p.everywhere
	}
	if p.opts.Log == nil {
		p.opts.Log = slog.Default()
	}
	p.history.init()
	p.routes()
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// Close ends the page's background work and its open connections. What is served afterwards has the
// history until then, and says so. A page that is needed until the program ends need not be closed,
// but [http.Server.Shutdown] waits for open pages: pass Close to [http.Server.RegisterOnShutdown].
func (p *Page) Close() {
	p.stop()
	p.done.Wait()
	p.viewers.close()
}

// topInterval is after how many seconds the most refused keys are looked at again.
const topInterval = 5

// run ends a second of the history each second.
func (p *Page) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for seconds := 0; ; seconds++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.history.sample(now)
			if seconds%topInterval == 0 && p.opts.Top != nil {
				p.refused.update(now, p.opts.Top.Top())
			}
			p.viewers.send(func(c choice, maySee func(string) bool) []byte {
				return event(tick{now.UnixMilli(), p.rows(c, maySee, false)})
			})
		}
	}
}
