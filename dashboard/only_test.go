package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/dashboard"
)

// TestOnly: a viewer who may see some limits sees nothing of others and no state, on each page, and
// may not act under them.
func TestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		all := []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerHour("mine", 5)),
			algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("theirs", 5)))}
		var acted []string
		page := newPage(t, &dashboard.Options{Store: store,
			Limits:   func() []ratelimit.Algorithm { return all },
			MayWrite: func(*http.Request) bool { return true },
			State:    func() []dashboard.Line { return []dashboard.Line{{Name: "theirs too"}} },
			Only: func(r *http.Request) func(string) bool {
				if r.Header.Get("All") != "" {
					return nil
				}
				return func(limit string) bool { return limit == "mine" }
			},
			Acting: func(_ *http.Request, a dashboard.Action) func(int, error) {
				return func(status int, err error) {
					for _, s := range a.Subjects {
						acted = append(acted, fmt.Sprint(a.Name, " ", s.Limit.Limit().Name, " ",
							s.Key, " ", a.For, " ", status, " ", err))
					}
				}
			}})
		for _, a := range all {
			l := newLimiter(t, store, a).WithObserver(page.Observe)
			if _, err := l.Allow(t.Context(), "user"); err != nil {
				t.Fatal(err)
			}
		}
		b, everything := browser{t, page}, browser{t, seesAll{page}}
		for _, path := range []string{"/", "/snapshot"} {
			own, text := b.do(httptest.NewRequest(http.MethodGet, path, nil))
			_, other := everything.do(httptest.NewRequest(http.MethodGet, path, nil))
			if own != http.StatusOK || !strings.Contains(text, "mine") ||
				strings.Contains(text, "theirs") || !strings.Contains(other, "theirs too") {
				t.Errorf("%s: %s", path, text)
			}
		}
		for _, path := range []string{"/limit?name=", "/chart?name="} {
			for name, want := range map[string]int{"mine": 200, "theirs": 404} {
				status, _ := b.do(httptest.NewRequest(http.MethodGet, path+name, nil))
				if status != want {
					t.Errorf("%s%s: %d", path, name, status)
				}
			}
		}
		if text := b.look("user"); !strings.Contains(text, "mine") ||
			strings.Contains(text, "theirs") {
			t.Errorf("the key: %s", text)
		}
		for _, who := range []browser{b, everything} {
			stop, events := stream(t, who.page, "/events")
			time.Sleep(3 * time.Second)
			stop()
			if strings.Contains(events.String(), "theirs") != (who == everything) ||
				!strings.Contains(events.String(), "mine") {
				t.Errorf("the events: %s", events)
			}
		}

		id := heldID(t, newLimiter(t, store, all[1]))
		release := url.Values{"token": {b.token()}, "action": {"release"}, "id": {id},
			"confirmed": {"yes"}}
		for _, form := range []url.Values{b.action("reset", "mine", "user"),
			everything.action("reset", "theirs", "user"), release} {
			b.post("/act", form)
		}
		want := []string{"reset mine user 0s 200 <nil>",
			"reset theirs user 0s 403 you may not do this",
			"release theirs user 0s 403 you may not do this"}
		if fmt.Sprint(acted) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", acted, want)
		}
		if status, _ := everything.post("/act", release); status != http.StatusOK {
			t.Errorf("the hold is gone: %d", status)
		}
	})
}

// seesAll sends requests of a viewer who may see all limits.
type seesAll struct{ page http.Handler }

func (s seesAll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("All", "yes")
	s.page.ServeHTTP(w, r)
}

// heldID returns the ID of a unit that is held.
func heldID(t *testing.T, l *ratelimit.Limiter) string {
	t.Helper()
	held, err := l.Reserve(t.Context(), "user", 1)
	if err != nil {
		t.Fatal(err)
	}
	id, err := held.Token()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// stream opens a page's events, until stop is called.
func stream(t *testing.T, page http.Handler, path string) (stop func(), events *strings.Builder) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	w := httptest.NewRecorder()
	events = new(strings.Builder)
	done := make(chan struct{})
	go func() {
		defer close(done)
		page.ServeHTTP(w, r)
	}()
	return func() {
		cancel()
		<-done
		events.WriteString(w.Body.String())
	}, events
}
