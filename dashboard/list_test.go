package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
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

// calls observes decisions under a limit, of a key that then has so many units free.
func calls(t *testing.T, page *dashboard.Page, limit string, admitted, refused int, free int64) {
	l := ratelimit.PerMinute(limit, 100)
	for i := range admitted + refused {
		ok := i < admitted
		page.Observe(t.Context(), ratelimit.Observation{Limits: []ratelimit.Limit{l}, N: 1,
			Results: []ratelimit.Result{{Allowed: ok, Limit: l, Remaining: free}}, Admitted: ok})
	}
}

var rowName = regexp.MustCompile(`<tr data-limit="([^"]+)">`)

// listed returns the names of the limits in a list.
func listed(page string) (names string) {
	for _, m := range rowName.FindAllStringSubmatch(page, -1) {
		names += m[1] + " "
	}
	return strings.TrimSpace(names)
}

// TestList: the list is sorted and filtered as a link says, links keep what was chosen, and a limit
// that has not decided is there too.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, &dashboard.Options{Store: newStore(t),
			Limits: func() []ratelimit.Algorithm {
				return []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerHour("idle", 7))}
			}})
		calls(t, page, "team-a", 5, 1, 40)
		calls(t, page, "team-b", 9, 9, 0)
		calls(t, page, "other", 99, 0, 20)
		time.Sleep(1500 * time.Millisecond)
		b := browser{t, page}
		for query, want := range map[string]string{
			"":                        "team-b team-a other idle",
			"?sort=used":              "team-b other team-a idle",
			"?sort=name":              "idle other team-a team-b",
			"?sort=x&range=x":         "team-b team-a other idle",
			"?refusing=yes":           "team-b team-a",
			"?filter=TEAM&sort=name":  "team-a team-b",
			"?filter=none":            "",
			"?filter=idle&range=60m":  "idle",
			"?part=list&filter=other": "other",
		} {
			if got := listed(b.get("/" + query)); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		shown := b.get("/?filter=team&sort=name&range=60m")
		for _, want := range []string{
			`href="./?filter=team&amp;sort=name"`, // 15 minutes
			`href="./?filter=team&amp;range=60m&amp;sort=used"`,
			`href="limit?name=team-a&amp;filter=team&amp;range=60m&amp;sort=name"`,
			`chart?name=team-a&amp;filter=team&amp;range=60m&amp;sort=name&amp;at=`,
			`action="key?filter=team&amp;range=60m&amp;sort=name" role="search"`,
			"team</a> 2 limits, 42 % refused", "100 a minute for each key", "2 of 4 limits.",
			`value="60" aria-hidden="true"></meter> <span>60 %</span>`,
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		if shown := b.get("/"); !strings.Contains(shown, "7 an hour for each key") ||
			!strings.Contains(shown, "<title>● 8.1 % refused</title>") {
			t.Errorf("the page is %s", shown)
		}
		for path, want := range map[string]string{
			"/?refusing=yes": `href="./?refusing=yes&amp;sort=used"`,
			"/limit?name=team-a&filter=team&sort=name": `href="limit?name=team-a` +
				`&amp;filter=team&amp;range=60m&amp;sort=name"`,
		} {
			if shown := b.get(path); !strings.Contains(shown, want) {
				t.Errorf("%s lacks %q: %s", path, want, shown)
			}
		}
	})
}

// TestGroups: limits whose names begin alike are a group with the share that they refuse, without
// trials, whose link lists them, and a long list is cut until somebody wants all of it.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		for i := range 58 {
			calls(t, page, fmt.Sprint("single", 10+i), 1, 0, 50)
		}
		for _, separator := range []string{"-", "_", ".", "/", ":", "|"} {
			calls(t, page, "team"+separator+"a", 3, 1, 50)
		}
		page.ObserveShadow(t.Context(), shadow.Observation{
			Observation: ratelimit.Observation{Results: []ratelimit.Result{{}},
				Limits: []ratelimit.Limit{ratelimit.PerMinute("team-trial", 1)}},
			Live: []ratelimit.Result{{Allowed: true}}})
		time.Sleep(1500 * time.Millisecond)
		b := browser{t, page}
		shown := b.get("/?sort=name&all=yes")
		const group = `<a href="./?all=yes&amp;filter=team&amp;sort=name">team</a> ` +
			"7 limits, 25 % refused"
		if !strings.Contains(shown, group) || strings.Count(shown, `class="group"`) != 1 {
			t.Errorf("the page lacks %q: %s", group, shown)
		}
		if n := len(strings.Fields(listed(shown))); n != 65 {
			t.Errorf("%d limits, want all 65", n)
		}
		shown = b.get("/?filter=E&range=60m")
		const all = `60 of 65 limits. <a href="./?all=yes&amp;filter=E&amp;range=60m">Show all</a>`
		if n := len(strings.Fields(listed(shown))); n != 60 || !strings.Contains(shown, all) {
			t.Errorf("%d limits, and the page lacks %q: %s", n, all, shown)
		}
	})
}

// TestTotals: the large numbers are of the last minute, with what has changed since before it, and
// count no trial and, in the share refused, nothing that was not decided.
func TestTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		time.Sleep(500 * time.Millisecond)
		calls(t, page, "calls", 600, 0, 50)
		time.Sleep(time.Minute)
		calls(t, page, "calls", 900, 100, 50)
		limit := []ratelimit.Limit{ratelimit.PerMinute("calls", 100)}
		for range 250 {
			page.Observe(t.Context(), ratelimit.Observation{Limits: limit, Err: errors.New("no")})
		}
		page.ObserveShadow(t.Context(), shadow.Observation{
			Observation: ratelimit.Observation{Results: []ratelimit.Result{{}},
				Limits: []ratelimit.Limit{ratelimit.PerMinute("trial", 1)}},
			Live: []ratelimit.Result{{Allowed: true}}})
		time.Sleep(time.Minute)
		b := browser{t, page}
		shown := b.get("/?sort=name")
		for _, want := range []string{
			"<strong>15/s</strong> <span>&#43;50 %</span>\n<small>1,500 in 2 min<",
			"<strong>10 %</strong> <span>&#43;10.0 points</span>\n<small>100 in 2 min<",
			"<div class=\"bad\"><dt>Undecided</dt>\n<dd><strong>250</strong>",
			"<dt>Limits that refuse</dt>\n<dd><strong>1</strong>\n" +
				`<small><a href="./?refusing=yes&amp;sort=name">of 2, in 2 min</a>`,
			"<td>1,500</td><td>100</td><td>6.2 %</td>", "250 undecided",
			"21 decisions a second, 10 % refused.", `<span class="undecided">`,
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		drawn := b.get("/chart?name=calls&range=1m")
		for _, want := range []string{ // 900 admitted, 100 refused and 250 undecided
			`"#e0533d" d="M0 99V0h1V99h59V99z"`, `"#e8912d" d="M0 99V19h1V99h59V99z"`,
			`"#4a93c4" d="M0 99V27h1V99h59V99z"`} {
			if !strings.Contains(drawn, want) {
				t.Errorf("the chart lacks %q: %s", want, drawn)
			}
		}
	})
}

// TestPlot: the chart, its highest column, its table and the limit's line tell the same values at
// the same times.
func TestPlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, &dashboard.Options{
			Rule: func(string) dashboard.Rule { return dashboard.Rule{Shared: true} }})
		limit := ratelimit.PerMinute("calls", 600)
		count := func(n int) {
			for range n {
				page.Observe(t.Context(), ratelimit.Observation{N: 1, Admitted: true,
					Limits:  []ratelimit.Limit{limit},
					Results: []ratelimit.Result{{Allowed: true, Limit: limit, Remaining: 9}}})
			}
		}
		for _, at := range []struct{ second, calls int }{{30, 5}, {40, 20}, {59, 10}} {
			time.Sleep(time.Until(started(time.Duration(at.second)*time.Second + time.Second/2)))
			count(at.calls)
		}
		time.Sleep(time.Until(started(time.Minute + time.Second/2)))
		shown := browser{t, page}.get("/limit?name=calls&range=1m")
		at := func(second int) string {
			return fmt.Sprintf(`<time datetime="2000-01-01T00:00:%02dZ">00:00:%02d UTC</time>`,
				second, second)
		}
		for _, want := range []string{
			"<span>peak 20/s at " + at(40) + "</span>", "of 1 s each",
			`<path class="admitted" d="M0 99V99h30V74h1V99h9V0h1V99h18V49h1V99z"/>`,
			`<path class="line" d="M0 49H60"/>`, "the limit, 10/s",
			"<span>20/s</span><span>10/s</span>",
			"<span>" + at(0) + "</span><span>" + at(15) + "</span><span>" + at(30) + "</span>" +
				"<span>" + at(45) + "</span><span>now</span>",
			at(29) + "<td>0<td>0<td>0\n", at(30) + "<td>5<td>0<td>0\n",
			at(40) + "<td>20<td>0<td>0\n", at(59) + "<td>10<td>0<td>0\n",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
	})
}

// TestRanges: what was decided longer ago is in the longer ranges, for an hour.
func TestRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		b := browser{t, page}
		time.Sleep(500 * time.Millisecond)
		calls(t, page, "calls", 7, 0, 50)
		for _, at := range []struct {
			after time.Duration
			want  string // ranges that have the calls
		}{
			{2 * time.Second, "1m 15m 60m"}, {59 * time.Second, "1m 15m 60m"},
			{62 * time.Second, "15m 60m"}, {14 * time.Minute, "15m 60m"}, {16 * time.Minute, "60m"},
			{59 * time.Minute, "60m"}, {61 * time.Minute, ""},
		} {
			time.Sleep(time.Until(started(at.after)))
			var has []string
			for _, r := range []string{"1m", "15m", "60m"} {
				if strings.Contains(b.get("/?range="+r), "<td>7</td><td>0</td>") {
					has = append(has, r)
				}
				plot := strings.Contains(b.get("/limit?name=calls&range="+r), ": 7 admitted")
				drawn := strings.Contains(b.get("/chart?name=calls&range="+r), "V0h1")
				ended := r != "60m" || at.after > 15*time.Second // the column
				if want := ended && slices.Contains(has, r); plot != want || drawn != want {
					t.Errorf("after %v the charts of %s have the calls: %t, %t",
						at.after, r, plot, drawn)
				}
				full := strings.Contains(b.get("/?range="+r), "<span>50 %</span>")
				if full != slices.Contains(has, r) {
					t.Errorf("after %v the fullest key of %s is there: %t", at.after, r, full)
				}
			}
			shown := b.get("/limit?name=calls")
			for _, r := range []string{"1", "15", "60"} {
				row := `<tr><th scope="row">` + r + ` min</th><td>7</td><td>0</td>`
				if strings.Contains(shown, row) != slices.Contains(has, r+"m") {
					t.Errorf("after %v the numbers of %s min are wrong: %s", at.after, r, shown)
				}
			}
			if got := strings.Join(has, " "); got != at.want {
				t.Errorf("after %v the calls are in %q, want %q", at.after, got, at.want)
			}
		}
	})
}

// started returns the time so long after a bubble of synctest begins.
func started(after time.Duration) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)
}

// TestOverview: the page says in a sentence how things are, what somebody has to act on, and what
// makes a first decision.
func TestOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state []dashboard.Line
		page := newPage(t, &dashboard.Options{
			State: func() []dashboard.Line { return state },
			Try:   func() string { return "curl <here>" },
			Rule: func(string) dashboard.Rule {
				return dashboard.Rule{Keys: "for all together", Shared: true,
					Lines: func() []dashboard.Line {
						return []dashboard.Line{{Name: "file", Value: "limits.yaml:3:5"}}
					}}
			}})
		b := browser{t, page}
		wants := func(path string, texts ...string) {
			t.Helper()
			shown := b.get(path)
			for _, text := range texts {
				if !strings.Contains(shown, text) {
					t.Errorf("the page lacks %q: %s", text, shown)
				}
			}
		}
		wants("/", "No decision yet", "<pre tabindex=\"0\">curl &lt;here&gt;</pre>",
			"No decision in the last minute.", "<title>Limits</title>")
		state = []dashboard.Line{{Name: "store", Value: "redis", Says: "Deciding on Redis."},
			{Name: "file", Value: "x", Says: "The limits of 2000-01-01T00:00:05Z are in force."}}
		calls(t, page, "calls", 97, 3, 50)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		wants("/", `<strong>Deciding on Redis.</strong> 10 decisions a second, 3 % refused. `+
			`The limits of <time datetime="2000-01-01T00:00:05Z">00:00 UTC</time> are in force.`,
			"<title>● 3 % refused</title>", "97 in 10 s", "for all together")
		wants("/limit?name=calls", "the limit, 1.7/s", "limits.yaml:3:5", `<path class="line"`)
		state = []dashboard.Line{{Name: "store", Value: "redis", Bad: true,
			Says: "Redis has been unavailable since 2000-01-01T00:00:05Z: calls are errors."},
			{Name: "file", Value: "no such file", Bad: true}}
		wants("/", `<p class="says bad">Redis has been unavailable since <time `,
			`<p class="says bad">file: no such file</p>`,
			"<title>● Redis has been unavailable</title>")
		time.Sleep(15 * time.Minute)
		wants("/", "0 in 15 min")
	})
}

// TestRatesInForce: the list shows the rate in force and others of the limit, not that of the last
// decision, and a trial after what refuses, whose page has the keys that it would refuse.
func TestRatesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, err := topkeys.New(&topkeys.Options{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		page := newPage(t, &dashboard.Options{Store: newStore(t), Top: top,
			Limits: func() []ratelimit.Algorithm {
				return []ratelimit.Algorithm{algorithm.SlidingLog(ratelimit.PerMinute("api", 300))}
			},
			Rule: func(string) dashboard.Rule {
				return dashboard.Rule{Keys: "for each tenant",
					Besides: func() string { return "3,000 a minute by plan=pro" }}
			}})
		calls(t, page, "api", 5, 1, 40) // at 100 a minute
		limit := ratelimit.PerMinute("trial", 3)
		for range 2 {
			o := ratelimit.Observation{Limits: []ratelimit.Limit{limit}, Key: "ann",
				Results: []ratelimit.Result{{Limit: limit}}}
			top.Observe(t.Context(), o)
			page.ObserveShadow(t.Context(),
				shadow.Observation{Observation: o, Live: []ratelimit.Result{{Allowed: true}}})
		}
		time.Sleep(6 * time.Second)
		b := browser{t, page}
		const want = "300 a minute for each tenant, 3,000 a minute by plan=pro"
		shown := b.get("/")
		if names := listed(shown); names != "api trial" || !strings.Contains(shown, want) ||
			!strings.Contains(shown, "would refuse 2 that the live limits admit") {
			t.Errorf("the list of %s is %s", names, shown)
		}
		if strings.Contains(shown, "<bdi>ann</bdi>") {
			t.Errorf("a key that a trial would refuse is among the refused ones: %s", shown)
		}
		if shown := b.get("/limit?name=api"); !strings.Contains(shown, want) {
			t.Errorf("the page of the limit is %s", shown)
		}
		if shown := b.get("/limit?name=trial"); !strings.Contains(shown, "<bdi>ann</bdi>") ||
			!strings.Contains(shown, "Keys that it would refuse most") {
			t.Errorf("the page of the trial is %s", shown)
		}
	})
}

// TestListedKey: a hash in the list of most refused keys leads to the page of its key under all
// limits, also if it is typed. The key can be reset there, and is not shown.
func TestListedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		top, err := topkeys.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		log := algorithm.SlidingLog(ratelimit.PerHour("log", 1))
		more := algorithm.SlidingLog(ratelimit.PerHour("more", 1))
		other := algorithm.SlidingLog(ratelimit.PerHour("other", 5))
		page := newPage(t, &dashboard.Options{Store: store, Top: top,
			MayWrite: func(*http.Request) bool { return true },
			Limits: func() []ratelimit.Algorithm {
				return []ratelimit.Algorithm{more, log, other}
			}})
		observe := func(ctx context.Context, o ratelimit.Observation) {
			top.Observe(ctx, o)
			page.Observe(ctx, o)
		}
		if _, err := newLimiter(t, store, other).Allow(t.Context(), "mallory"); err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, store, log).WithObserver(observe)
		first := newLimiter(t, store, more).WithObserver(observe)
		for _, call := range []struct {
			limiter *ratelimit.Limiter
			key     string
		}{{l, "mallory"}, {l, "mallory"}, {first, "eve"}, {first, "eve"}, {first, "eve"}} {
			if _, err := call.limiter.Allow(t.Context(), call.key); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		b := browser{t, page}
		name := top.Name("mallory")
		button := regexp.MustCompile(`name="refused" value="([^"]+)"`)
		buttons := button.FindAllStringSubmatch(b.get("/"), -1)
		if len(buttons) != 2 {
			t.Fatal(b.get("/"))
		}
		m := buttons[1] // the key of the other limit is refused more
		own := b.get("/limit?name=log")
		if got := button.FindAllString(own, -1); len(got) != 1 || got[0] != m[0] {
			t.Errorf("the page of the limit leads to %q: %s", got, own)
		}
		form := url.Values{"token": {b.token()}, "refused": {m[1]}}
		status, shown := b.post("/key", form)
		if want := "log refuses this key: 1 of 1 used."; status != 200 ||
			!strings.Contains(shown, want) || !strings.Contains(shown, "<bdi>"+name) ||
			!strings.Contains(shown, "1 of 5 used") {
			t.Errorf("status %d, want %q: %s", status, want, shown)
		}
		for _, typed := range []string{name[:8], name[:8] + "…", name} {
			if shown := b.look(typed); !strings.Contains(shown, "<bdi>"+name) {
				t.Errorf("%s leads to %s", typed, shown)
			}
		}
		if shown := b.look("0123abcd"); !strings.Contains(shown, "<bdi>0123abcd</bdi>") {
			t.Errorf("a key like a hash is %s", shown)
		}
		form.Set("action", "reset")
		form.Set("limit", "log")
		_, confirm := b.post("/act", form)
		form.Set("confirmed", "yes")
		_, done := b.post("/act", form)
		if !strings.Contains(done, "0 of 1 used") || !allows(t, l, "mallory") {
			t.Errorf("the key is not reset: %s", done)
		}
		if strings.Contains(fmt.Sprint(shown, confirm, done), "mallory") {
			t.Error("a page shows the key")
		}
		form.Set("refused", "AAAA")
		if status, _ := b.post("/key", form); status != 400 {
			t.Errorf("a name that is not in the list: status %d", status)
		}
	})
}
