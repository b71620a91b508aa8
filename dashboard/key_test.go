package dashboard_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/shadow"
	"github.com/truewindow/ratelimit/topkeys"
)

// rows returns the cells of the tables of a page, each row as text.
func rows(page string) (all []string) {
	for _, row := range strings.Split(page, "<tr><th scope=\"row\">")[1:] {
		in, rest, _ := strings.Cut(row, "</th><td>")
		free, _, _ := strings.Cut(rest, "</td>")
		all = append(all, in+" "+free)
	}
	return all
}

// TestSteps: the page of a key has when each unit is free again, of takes, holds and calls.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		log := algorithm.SlidingLog(ratelimit.PerMinute("log", 5))
		budget := algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("budget", 10)))
		flight := algorithm.InFlight("flight", 3)
		page := newPage(t, &dashboard.Options{Store: store, Limits: func() []ratelimit.Algorithm {
			return []ratelimit.Algorithm{log, budget, flight}
		}})
		b := browser{t, page}
		for range 3 {
			if _, err := newLimiter(t, store, log).Allow(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		for _, a := range []ratelimit.Algorithm{budget, flight} {
			r, err := newLimiter(t, store, a).Reserve(t.Context(), "key", 2)
			if err != nil || !r.Allowed() {
				t.Fatal(err, r)
			}
			if _, err := r.Token(); err != nil { // ends its renewals
				t.Fatal(err)
			}
		}
		shown := b.look("key")
		for _, want := range []string{
			"5 a minute for each key</small>", ">3 of 5 used<", ">2 free now, all in 50 s<",
			"10 a minute for each key, a budget</small>", ">2 of 10 used or held<", ">8 free now, ",
			"3 at once for each key</small>", ">2 of 3 used or held<", ">1 free now, ",
			"No limit refuses this key.",
			`<meter max="5" high="5" optimum="0" value="3"`,
			`<path class="free" d="M0 99V60H600V40H800V20H1000V0H1020V99z"/>`,
			"<span>5</span><span>2.5</span>",
			"<span>now</span><span>in 13 s</span><span>in 25 s</span><span>in 38 s</span>" +
				"<span>in 50 s</span>"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		got := rows(shown)
		// The fullest limit is the first: the calls in flight, the log and the budget.
		if want := []string{"30 s 3", "40 s 4", "50 s 5"}; len(got) != 5 ||
			strings.Join(got[1:4], ",") != strings.Join(want, ",") {
			t.Fatalf("the steps are %q, want %q and one for the holds of each limit", got, want)
		}
		for i, units := range map[int]int{0: 3, 4: 10} {
			var seconds, free int
			_, err := fmt.Sscanf(got[i], "1 min %d s %d", &seconds, &free)
			if err != nil || seconds > 8 || free != units {
				t.Errorf("a hold of a minute is free in %s, want %d units", got[i], units)
			}
		}
		if after := b.look("key"); after != shown {
			t.Error("looking at a key changes it")
		}
	})
}

// TestRefusedKey: the page of a key says first which limits refuse it and until when, that a block
// or an error does, and not that a trial would.
func TestRefusedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		free := algorithm.SlidingLog(ratelimit.PerMinute("free", 9))
		trial := algorithm.SlidingLog(ratelimit.PerMinute("trial", 1))
		log := algorithm.SlidingLog(ratelimit.PerMinute("log", 2))
		block := algorithm.Blocking("block", time.Hour)
		all := []ratelimit.Algorithm{free, trial, log, block}
		page := newPage(t, &dashboard.Options{Store: store,
			MayWrite: func(*http.Request) bool { return true },
			Find: func(key string) (found []dashboard.Subject, err error) {
				for _, a := range all {
					found = append(found, dashboard.Subject{Limit: a, Key: key})
				}
				return found, nil
			}})
		page.ObserveShadow(t.Context(), shadow.Observation{
			Observation: ratelimit.Observation{Limits: []ratelimit.Limit{trial.Limit()},
				Results: []ratelimit.Result{{}}},
			Live: []ratelimit.Result{{Allowed: true}}})
		b := browser{t, page}
		take := func(a ratelimit.Algorithm) {
			t.Helper()
			if _, err := newLimiter(t, store, a).Allow(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		says := func(want ...string) string {
			t.Helper()
			shown := b.look("key")
			_, rest, _ := strings.Cut(shown, `<div id="says" class="says`)
			if got, _, _ := strings.Cut(rest, "</div>"); got != strings.Join(want, "\n<p>")+"\n" {
				t.Errorf("the page says %q, want %q", got, want)
			}
			return shown
		}
		take(trial)
		shown := says(`">`, "No limit refuses this key.</p>")
		for _, want := range []string{"trial <i>trial</i>", ">Not blocked<"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		form := b.action("reset", "trial", "key")
		form.Del("confirmed")
		const would = "<p>trial would refuse this key: 1 of 1 used. "
		if _, confirm := b.post("/act", form); !strings.Contains(confirm, would) {
			t.Errorf("the question lacks %q: %s", would, confirm)
		}

		take(log)
		time.Sleep(10 * time.Second)
		take(log)
		time.Sleep(10 * time.Second)
		const refuses = "log refuses this key: 2 of 2 used. The next unit is free in 40 s, " +
			"all in 50 s.</p>"
		shown = says(` refused">`, refuses, "No other limit refuses it.</p>")
		for _, want := range []string{"<p class=\"free\">next in 40 s, all in 50 s</p>",
			`<meter max="2" high="0" optimum="0" value="2"`} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}

		all = []ratelimit.Algorithm{log, block}
		_, err := newLimiter(t, store, block).Force(t.Context(), "key",
			algorithm.BlockFor(15*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		shown = says(` refused">`, "block blocks this key for 15 min.</p>", refuses)
		if !strings.Contains(shown, ">Blocked for 15 min<") {
			t.Errorf("the page does not show the block: %s", shown)
		}

		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		all = []ratelimit.Algorithm{free}
		shown = b.look("key")
		if !strings.Contains(shown, `class="says bad">`+"\n<p>free cannot be looked up: ") {
			t.Errorf("the page hides an error: %s", shown)
		}
	})
}

// TestManySteps: of a large limit 48 steps are looked up, the last of which frees all units.
func TestManySteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		log := algorithm.SlidingLog(ratelimit.PerHour("log", 1<<40))
		page := newPage(t, &dashboard.Options{Store: store,
			Limits: func() []ratelimit.Algorithm { return []ratelimit.Algorithm{log} }})
		for range 100 {
			if _, err := newLimiter(t, store, log).AllowN(t.Context(), "key", 1<<33); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		got := rows(browser{t, page}.look("key"))
		if len(got) != 48 || got[47] != "59 min 59 s 1,099,511,627,776" || got[0] >= got[1] {
			t.Errorf("%d steps: %q", len(got), got)
		}
	})
}

// TestLongSteps: the chart of a limit of a year ends where all units are free.
func TestLongSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		year := ratelimit.Limit{Name: "log", Max: 2, Window: 365 * 24 * time.Hour}
		log := algorithm.SlidingLog(year)
		page := newPage(t, &dashboard.Options{Store: store,
			Limits: func() []ratelimit.Algorithm { return []ratelimit.Algorithm{log} }})
		if _, err := newLimiter(t, store, log).Allow(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		shown := browser{t, page}.look("key")
		if want := `d="M0 99V50H1000V0H1020V99z"`; !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q: %s", want, shown)
		}
	})
}

// TestBucketSteps: steps that follow each other closely are joined only if all of them are near.
func TestBucketSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		bucket := algorithm.TokenBucket("bucket", 10, 100) // a unit each 100 ms
		page := newPage(t, &dashboard.Options{Store: store,
			Limits: func() []ratelimit.Algorithm { return []ratelimit.Algorithm{bucket} }})
		if _, err := newLimiter(t, store, bucket).AllowN(t.Context(), "key", 6); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(rows(browser{t, page}.look("key")), ", ")
		if want := "0.2 s 96, 0.4 s 98, 0.6 s 100"; got != want {
			t.Errorf("the steps are %q, want %q", got, want)
		}
	})
}

// scene is a page with a log, a block and a budget, all of whose viewers may write.
func scene(t *testing.T, log *strings.Builder) (
	b browser, limiter, blocks, budget *ratelimit.Limiter,
) {
	store := newStore(t)
	all := []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerHour("log", 1)),
		algorithm.Blocking("blocks", time.Hour),
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("budget", 10)))}
	top, err := topkeys.New(&topkeys.Options{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	page := newPage(t, &dashboard.Options{Store: store, Top: top,
		Limits:   func() []ratelimit.Algorithm { return all },
		MayWrite: func(r *http.Request) bool { return r.Header.Get("Reader") == "" },
		Log:      slog.New(slog.NewTextHandler(log, nil))})
	return browser{t, page}, newLimiter(t, store, all[0]), newLimiter(t, store, all[1]),
		newLimiter(t, store, all[2])
}

func allows(t *testing.T, l *ratelimit.Limiter, key string) bool {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Allowed
}

// TestActions: reset, block and release do what they say, once they are confirmed, and leave a line
// of the log without the key.
func TestActions(t *testing.T) {
	var log strings.Builder
	b, limiter, blocks, budget := scene(t, &log)
	if _, err := limiter.Allow(t.Context(), "user"); err != nil {
		t.Fatal(err)
	}
	held, err := budget.Reserve(t.Context(), "user", 10)
	if err != nil {
		t.Fatal(err)
	}
	id, err := held.Token()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		form    url.Values
		limiter *ratelimit.Limiter
		allows  bool // afterwards
	}{
		{b.action("reset", "log", "user"), limiter, true},
		{b.action("block", "blocks", "user"), blocks, false},
		{b.action("reset", "blocks", "user"), blocks, true},
		{url.Values{"token": {b.token()}, "action": {"release"}, "id": {id},
			"confirmed": {"yes"}}, budget, true},
	} {
		tt.form.Set("for", "15m")
		if tt.form.Get("action") != "block" {
			tt.form.Set("for", "of the user")
		}
		tt.form.Del("confirmed")
		status, confirm := b.post("/act", tt.form)
		if status != http.StatusOK || allows(t, tt.limiter, "user") == tt.allows {
			t.Errorf("%v is done before it is confirmed: %s", tt.form, confirm)
		}
		tt.form.Set("confirmed", "yes")
		if status, done := b.post("/act", tt.form); status != http.StatusOK ||
			allows(t, tt.limiter, "user") != tt.allows {
			t.Errorf("%v is not done: %s", tt.form, done)
		}
	}
	lines := log.String()
	if n := strings.Count(lines, "action="); n != 4 || strings.Contains(lines, "user") {
		t.Errorf("the log has %d lines: %s", n, lines)
	}
}

// TestActionsRefused: what lacks the right, the token or the origin of the page, or is wrong,
// changes nothing.
func TestActionsRefused(t *testing.T) {
	var log strings.Builder
	b, limiter, _, _ := scene(t, &log)
	if _, err := limiter.Allow(t.Context(), "user"); err != nil {
		t.Fatal(err)
	}
	const reset = "reset"
	for name, tt := range map[string]struct {
		change func(url.Values)
		header [2]string
		status int
	}{
		"no right":       {nil, [2]string{"Reader", "yes"}, 403},
		"no token":       {func(f url.Values) { f.Del("token") }, [2]string{}, 403},
		"another token":  {func(f url.Values) { f.Set("token", "x") }, [2]string{}, 403},
		"another site":   {nil, [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another origin": {nil, [2]string{"Origin", "https://evil.example"}, 403},
		"no action":      {func(f url.Values) { f.Set("action", "x") }, [2]string{}, 400},
		"another limit":  {func(f url.Values) { f.Set("limit", "x") }, [2]string{}, 400},
		"another key":    {func(f url.Values) { f.Set("key", "eA") }, [2]string{}, 400},
		"no key":         {func(f url.Values) { f.Set("key", "!") }, [2]string{}, 400},
		"no block":       {func(f url.Values) { f.Set("action", "block") }, [2]string{}, 400},
		"no id":          {func(f url.Values) { f.Set("action", "release") }, [2]string{}, 400},
		"too long": {func(f url.Values) { f.Set("id", strings.Repeat("x", 3<<20)) },
			[2]string{}, 413},
	} {
		form := b.action(reset, "log", "user")
		if tt.change != nil {
			tt.change(form)
		}
		r := httptest.NewRequest(http.MethodPost, "/act", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if tt.header[0] != "" {
			r.Header.Set(tt.header[0], tt.header[1])
		}
		if status, body := b.do(r); status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", name, status, tt.status, body)
		}
		get := httptest.NewRequest(http.MethodGet, "/act?"+form.Encode(), nil)
		if status, _ := b.do(get); status != http.StatusMethodNotAllowed {
			t.Errorf("%s by GET: status %d", name, status)
		}
		if allows(t, limiter, "user") {
			t.Fatalf("%s: the key was reset", name)
		}
	}
	if shown := (browser{t, readOnly{b.page}}).look("user"); strings.Contains(shown, "Reset") {
		t.Error("whoever may not write sees actions")
	}
}

// TestBlockFor: a block says for how long the key is blocked, and one that the limit does not allow
// is refused before it is confirmed, and after.
func TestBlockFor(t *testing.T) {
	var log strings.Builder
	b, _, blocks, _ := scene(t, &log)
	for _, tt := range []struct {
		length string
		status int
		says   string
	}{
		{"1000h", 400, "at most 1h0m0s"},
		{"1h0m0.000000001s", 400, "at most 1h0m0s"},
		{"2562047h47m16.8s", 400, "at most 1h0m0s"},
		{"-1s", 400, "is not a duration"},
		{"1ns", 200, "blocked for 1 s"},
		{"15m", 200, "blocked for 15 min"},
		{"1h", 200, "blocked for 1 h"},
		{"15m", 200, "blocked for (1 h|59 min)"}, // the longer block is there still
	} {
		form := b.action("block", "blocks", "user")
		form.Set("for", tt.length)
		status, body := b.post("/act", form)
		if status != tt.status || !regexp.MustCompile(tt.says).MatchString(body) {
			t.Errorf("%s: %d, want %d and %q: %s", tt.length, status, tt.status, tt.says, body)
		}
		form.Del("confirmed")
		if status, body := b.post("/act", form); status != tt.status {
			t.Errorf("%s is not refused before it is confirmed: %d %s", tt.length, status, body)
		}
		if tt.status != 200 && !allows(t, blocks, "user") {
			t.Errorf("%s has blocked the key", tt.length)
		}
	}
}

// TestUnblock: what blocks a key is undone by an action of that name, which others do not have.
func TestUnblock(t *testing.T) {
	var log strings.Builder
	b, _, blocks, _ := scene(t, &log)
	if shown := b.look("user"); strings.Contains(shown, "Unblock") ||
		strings.Count(shown, "Reset…") != 2 {
		t.Errorf("the page of a key that is not blocked is %s", shown)
	}
	if _, err := blocks.Force(t.Context(), "user", algorithm.BlockFor(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if shown := b.look("user"); !strings.Contains(shown, "Unblock…") ||
		strings.Count(shown, "Reset…") != 2 {
		t.Errorf("the page of a blocked key is %s", shown)
	}
	form := b.action("reset", "blocks", "user")
	_, done := b.post("/act", form)
	for _, want := range []string{"Unblock the key: done.", "key <bdi>user</bdi>", "Not blocked"} {
		if !strings.Contains(done, want) {
			t.Errorf("the page lacks %q: %s", want, done)
		}
	}
	form.Del("confirmed")
	if _, confirm := b.post("/act", form); !strings.Contains(confirm, "Unblock the key?") ||
		!strings.Contains(confirm, "refuses no call of the key") ||
		!strings.Contains(confirm, "Cancel") {
		t.Errorf("the question is %s", confirm)
	}
}

// TestLongestFirst: of several limits that refuse a key, that which does so for longest is the
// first.
func TestLongestFirst(t *testing.T) {
	store := newStore(t)
	all := []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerMinute("a", 1)),
		algorithm.SlidingLog(ratelimit.PerHour("b", 1)),
		algorithm.SlidingLog(ratelimit.PerDay("c", 9))}
	page := newPage(t, &dashboard.Options{Store: store,
		Limits: func() []ratelimit.Algorithm { return all }})
	for _, a := range all {
		if _, err := newLimiter(t, store, a).Allow(t.Context(), "user"); err != nil {
			t.Fatal(err)
		}
	}
	shown := browser{t, page}.look("user")
	order := regexp.MustCompile(`(?s)b refuses this key.*a refuses this key.*No other limit`)
	if !order.MatchString(shown) {
		t.Errorf("the page is %s", shown)
	}
}

// TestLookUpFails: a store that fails is said once, however many limits it has.
func TestLookUpFails(t *testing.T) {
	store := newStore(t)
	page := newPage(t, &dashboard.Options{Store: store,
		Limits: func() []ratelimit.Algorithm {
			return []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerHour("a", 1)),
				algorithm.SlidingLog(ratelimit.PerHour("b", 1))}
		},
		State: func() []dashboard.Line {
			return []dashboard.Line{{Name: "store", Bad: true, Says: "Redis is away."}}
		}})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	shown := browser{t, page}.look("user")
	if !strings.Contains(shown, "2 of 2 limits cannot be looked up: the store is unavailable") ||
		!strings.Contains(shown, "Redis is away.") || strings.Contains(shown, "No other limit") {
		t.Errorf("the page is %s", shown)
	}
}

// TestTooManyLimits: a key is not looked up under ever so many limits: there is a list that can be
// narrowed.
func TestTooManyLimits(t *testing.T) {
	found := make([]dashboard.Subject, 100, 101)
	for i := range found {
		log := algorithm.SlidingLog(ratelimit.PerHour(fmt.Sprint("log-", i), 1))
		found[i] = dashboard.Subject{Limit: log, Key: "key"}
	}
	page := newPage(t, &dashboard.Options{Store: newStore(t),
		Find: func(string) ([]dashboard.Subject, error) { return found, nil }})
	b := browser{t, page}
	b.look("key")
	found = append(found, dashboard.Subject{Key: "key",
		Limit: algorithm.SlidingLog(ratelimit.PerHour("other", 1))})
	if list := b.look("key"); !strings.Contains(list, "101 limits count this key") ||
		!strings.Contains(list, `name="narrow" value="log-99"`) ||
		strings.Contains(list, " used<") {
		t.Errorf("the list is %s", list)
	}
	for narrow, want := range map[string]int{"log": 100, "log-9": 11, "other": 1} {
		status, shown := b.post("/key",
			url.Values{"token": {b.token()}, "q": {"key"}, "narrow": {narrow}})
		if n := strings.Count(shown, "0 of 1 used"); status != http.StatusOK || n != want {
			t.Errorf("%q: status %d, %d limits, want %d", narrow, status, n, want)
		}
	}
}

// readOnly sends requests of a viewer that may not write.
type readOnly struct{ page http.Handler }

func (r readOnly) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.Header.Set("Reader", "yes")
	r.page.ServeHTTP(w, req)
}
