package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestPage uses the page of a program under load as people do. Its pictures stand in the docs; for
// them the load runs for RATELIMIT_PAGE_LOAD before, less than 15 minutes, so that all calls are in
// the numbers.
func TestPage(t *testing.T) {
	chrome := newBrowser(t)
	s := newScene(t)
	if load := os.Getenv("RATELIMIT_PAGE_LOAD"); load != "" {
		d, err := time.ParseDuration(load)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
	}
	for _, c := range []struct {
		name string
		test func(*scene, *tab)
	}{
		{"moves", (*scene).moves},
		{"looks", (*scene).looks},
		{"inspects", (*scene).inspects},
		{"finds", (*scene).finds},
		{"charts", (*scene).charts},
		{"traces", (*scene).traces},
		{"states", (*scene).states},
		{"plain", (*scene).plain},
		{"polls", (*scene).polls},
		{"policy", (*scene).policy},
		{"equal", (*scene).equal}, // it ends the load
		{"gone", (*scene).gone},   // it ends the program
	} {
		if c.name == "states" && !depth.Full {
			continue // the browser would take the processors from other tests for minutes
		}
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			b := newTab(t, chrome)
			b.do(chromedp.Navigate(s.url))
			c.test(s, b)
		})
	}
}

// cell is an expression for a number in the row of a limit.
func cell(limit string, column int) string {
	return fmt.Sprintf(`+$("#limits tr[data-limit='%s']").cells[%d].innerText.replaceAll(",", "")`,
		limit, column)
}

// Columns of the table of limits.
const admittedInQuarter, refusedInQuarter = 4, 5

// moves: numbers move without a load of the page, a new limit and a refused key appear, and the
// browser asks nobody else and keeps nothing.
func (s *scene) moves(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	before := js[int64](b, cell("api", admittedInQuarter))
	b.until(fmt.Sprintf("%s > %d", cell("api", admittedInQuarter), before))
	js[int](b, `$("#limits tr[data-limit='api'] meter").value = 0`)
	b.until(`$("#limits tr[data-limit='api'] meter").value > 0`)
	b.until(`$("#top").innerText.includes("login")`)
	b.until(cell("api-300", refusedInQuarter) + " > 0")
	got := b.text(`#limits tr[data-limit="api-300"]`)
	if !strings.HasPrefix(got, "api-300 trial\n") ||
		!strings.Contains(got, "that the live limits admit") {
		s.t.Errorf("the trial's row is %q", got)
	}
	if b.text("#top") == "" || strings.Contains(b.text("#top"), "203.0.113.7") {
		s.t.Errorf("the most refused keys are %q", b.text("#top"))
	}
	_, err := s.block.Force(s.t.Context(), "user:7", algorithm.BlockFor(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	b.until(cell("abuse", admittedInQuarter) + " === 1")
	b.until(`$("#limits tr[data-limit='abuse'] a") !== null`) // it has a page now
	if js[bool](b, `!navigator.clipboard && $$(".copy").some((e) => !e.hidden)`) {
		s.t.Error("without a clipboard the page offers to copy")
	}
	copied := js[bool](b, `(() => {
		let text;
		Object.defineProperty(navigator, "clipboard",
			{value: {writeText: async (t) => { text = t; }}});
		$("#top .copy").click();
		return text !== undefined && text === $("#top .copy").value;
	})()`)
	if !copied {
		s.t.Error("the hash of a key is not copied")
	}
	if !slices.Equal(b.hosts, []string{s.host}) {
		s.t.Errorf("the page asked %v, want %s only", b.hosts, s.host)
	}
	kept := js[int](b, `localStorage.length + sessionStorage.length + document.cookie.length`)
	if kept != 0 {
		s.t.Error("the page keeps something in the browser")
	}
	b.clean()
}

// looks: every color and width is readable.
func (s *scene) looks(b *tab) {
	b.until(`$("#status").innerText === "Live." && $("#top").innerText.includes("login")`)
	for colors, back := range map[string]string{
		"light": "rgb(255, 255, 255)", "dark": "rgb(21, 23, 26)",
	} {
		b.prefers(colors)
		if got := js[string](b, `getComputedStyle(document.body).backgroundColor`); got != back {
			s.t.Errorf("%s: the background is %s", colors, got)
		}
		b.accessible()
		b.picture(colors)
	}
	b.prefers("light")
	js[bool](b, `(() => {
		$("#colors").value = "dark";
		return $("#colors").dispatchEvent(new Event("change"));
	})()`)
	for range 2 { // before the next load and after it
		if got := js[string](b, `getComputedStyle(document.body).backgroundColor`); got !=
			"rgb(21, 23, 26)" {
			s.t.Errorf("dark is chosen, and the background is %s", got)
		}
		b.do(chromedp.Navigate(s.url))
	}
	for _, of := range []string{"admitted", "refused"} {
		if !js[bool](b, fmt.Sprintf(`getComputedStyle($("path.%s")).fill ===
			getComputedStyle($("figcaption .%[1]s"), "::before").backgroundColor`, of)) {
			s.t.Errorf("%s has another color in the legend than in the chart", of)
		}
	}
	b.do(chromedp.EmulateViewport(320, 640))
	if width := js[int](b, `document.scrollingElement.scrollWidth`); width > 320 {
		s.t.Errorf("the page is %d pixels wide on a screen of 320", width)
	}
	b.do(chromedp.EmulateViewport(1100, 800))
	b.click(`a[href="limit?name=api"]`, "api")
	b.accessible()
	b.picture("limit-dark")
	b.prefers("light")
	b.accessible()
	b.picture("limit-light")
	b.clean()
}

// inspects: by keyboard alone a key is looked up, and what it has used is reset after a
// confirmation.
func (s *scene) inspects(b *tab) {
	r, err := s.budget.Reserve(context.Background(), "user:42", 400_000)
	if err != nil || !r.Allowed() {
		s.t.Fatal(err)
	}
	s.count(s.budget, true)
	for range 3 {
		s.takeN(s.budget, "user:42", 100_000)
	}
	b.press(kb.Tab)
	b.press("user:42")
	b.press(kb.Enter)
	b.until(`$("h1")?.innerText === "Key user:42"`)
	if got := b.text("main"); !strings.Contains(got, used("700,000", "300,000")) {
		s.t.Errorf("the page of the key is %q", got)
	}
	b.accessible()
	b.prefers("dark")
	b.accessible()
	b.picture("key-dark")
	b.prefers("light")
	b.picture("key-light")

	id, err := r.Token()
	if err != nil {
		s.t.Fatal(err)
	}
	b.fill("input[name=id]", id)
	b.click("button[value=release]", "End the hold")
	b.accessible()
	b.click("button[value=release]", "Done")
	if err := r.Commit(context.Background(), 1); err == nil {
		s.t.Error("the hold is there after its release")
	}
	s.lookUp(b, "user:42")
	if got := b.text("main"); !strings.Contains(got, used("300,000", "700,000")) {
		s.t.Errorf("after the release the page of the key is %q", got)
	}
	b.click("form:has(input[name=limit][value=tokens]) button[value=reset]", "Delete what is")
	b.click("button[value=reset]", "Done")
	s.lookUp(b, "user:42")
	if got := b.text("main"); !strings.Contains(got, used("\n0", "1,000,000")) {
		s.t.Errorf("after the reset the page of the key is %q", got)
	}
	b.click("button[value=block]", "Block the key")
	b.click("button[value=block]", "Done")
	s.lookUp(b, "user:42")
	if got := b.text("main"); !strings.Contains(got, "Blocked for 14 min 5") &&
		!strings.Contains(got, "Blocked for 15 min\n") {
		s.t.Errorf("after the block the page of the key is %q", got)
	}
	b.clean()
}

// rowNames is an expression for the names of the limits in the list, in their order.
const rowNames = `$$("#limits tr[data-limit]").map((r) => r.dataset.limit).join()`

// refusals is what a row says that callers were refused: a trial refuses nothing.
const refusals = `(r.querySelector("i") ? 0 : +r.cells[5].innerText.replaceAll(",", ""))`

// finds: the list is filtered as somebody types, and sorted, and all links keep what was chosen.
func (s *scene) finds(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	b.fill("input[name=filter]", "LOG")
	b.until(rowNames + ` === "login"`)
	b.until(`$("#ranges a").search.includes("filter=LOG")`)
	b.click("#ranges a", "Limits")
	if got := js[string](b, "location.search"); got != "?filter=LOG&range=1m" {
		s.t.Errorf("the link of a range leads to %s", got)
	}
	if got := js[string](b, rowNames); got != "login" {
		s.t.Errorf("with a filter the list is %s", got)
	}
	b.click("#limits a", "login")
	b.click("header nav a", "Limits")
	if got := js[string](b, "location.search"); got != "?filter=LOG&range=1m" {
		s.t.Errorf("the link back leads to %s", got)
	}
	b.do(chromedp.Navigate(s.url))
	b.do(chromedp.Click(chromedp.CSS("input[name=refusing]")))
	b.until(`!` + rowNames + `.includes("tokens") && ` + rowNames + `.includes("login")`)
	for sort, value := range map[string]string{ // the greatest is the first
		"used":    `r.querySelector("meter").value`,
		"refused": refusals,
	} {
		b.do(chromedp.Navigate(s.url + "?sort=" + sort))
		if !js[bool](b, `$$("#limits tr[data-limit]").map((r) => `+value+`).every((v, i, all) =>
			i === 0 || all[i - 1] >= v)`) {
			s.t.Errorf("sorted by %s the list is %s", sort, js[string](b, rowNames))
		}
	}
	b.do(chromedp.Navigate(s.url + "?sort=name"))
	if got := js[string](b, rowNames); got != "abuse,api,api-300,login,tokens" {
		s.t.Errorf("sorted by name the list is %s", got)
	}
	if got := b.text("#limits .group"); !strings.HasPrefix(got, "api 2 limits, ") {
		s.t.Errorf("the group is %q", got)
	}
	b.clean()
}

// charts: the chart has values under the pointer, and the same in a table.
func (s *scene) charts(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	for _, r := range []struct {
		name string
		rows int
	}{{"1m", 60}, {"15m", 90}, {"60m", 120}} {
		b.do(chromedp.Navigate(s.url + "?range=" + r.name))
		if n := js[int](b, `$$("#plot tbody tr").length`); n != r.rows {
			s.t.Errorf("the chart of %s has %d values, want %d", r.name, n, r.rows)
		}
	}
	call(b, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	b.do(chromedp.Navigate(s.url + "?range=1m"))
	point := `(() => {
		const plot = $("#plot .plot"), box = plot.getBoundingClientRect();
		return $$("#plot tbody tr").every((row, i, all) => {
			const x = i === all.length - 1 ? box.right - 1 :
				box.left + (i + 0.5) * box.width / all.length;
			plot.dispatchEvent(new PointerEvent("pointermove",
				{bubbles: true, clientX: x, clientY: box.top + 5}));
			const cells = [...row.cells].map((c) => c.textContent.trim());
			return $(".tip").innerText === cells[0] + ": " + cells[1] + " admitted, " + cells[2] +
				" refused" && (i < all.length - 1 || cells[1] !== "0");
		});
	})()`
	b.until(point)
	const zone = `$$("time").length > 60 && $$("time").every((e) => {
		const at = new Date(Date.parse(e.dateTime) + 5.5 * 3600e3);
		const [, hour, minute, second] = e.textContent.match(/(\d+):(\d\d)(?::(\d\d))?/);
		return hour % 12 === at.getUTCHours() % 12 && +minute === at.getUTCMinutes() &&
			(e.closest("#plot") ? +second === at.getUTCSeconds() : second === undefined) &&
			!e.textContent.includes("UTC");
	})`
	if !js[bool](b, zone) {
		s.t.Errorf("the times are not those of the viewer's zone: %s", b.text("figure"))
	}
	js[bool](b, `(() => { // the page puts right what is old
		for (const id of ["says", "totals", "plot", "top", "state"])
			document.getElementById(id).textContent = "";
		$("#limits tbody").append($("#limits tbody tr"));
		document.title = "old";
		return true;
	})()`)
	b.until(`["says", "totals", "plot", "top", "state"].every((id) =>
		document.getElementById(id).textContent !== "") && document.title !== "old"`)
	b.until(`$$("#limits tr[data-limit]").map((r) => ` + refusals + `)
		.every((v, i, all) => i === 0 || all[i - 1] >= v)`)
	for _, part := range []string{"#plot .scale", "#plot .axis", "#plot figcaption"} {
		if b.text(part) == "" {
			s.t.Errorf("the chart has no %s", part)
		}
	}
	b.clean()
}

// traces: by keyboard alone a viewer comes from what refuses to the key that is refused, and to
// when it is free.
func (s *scene) traces(b *tab) {
	b.until(`$("#status").innerText === "Live." && $("#top").innerText.includes("login")`)
	to := func(element string) {
		s.t.Helper()
		for range 80 {
			b.press(kb.Tab)
			if js[bool](b, `document.activeElement.matches(`+"`"+element+"`"+`)`) {
				b.press(kb.Enter)
				return
			}
		}
		s.t.Fatalf("no Tab leads to %s", element)
	}
	to(`#limits a[href^="limit?name=login"]`)
	b.until(`$("h1")?.innerText === "login"`)
	to(`#top button.link`)
	b.until(`$("h1")?.innerText.startsWith("Key ") ?? false`)
	if got := b.text("#says"); !strings.HasPrefix(got,
		"login refuses this key: 5 of 5 used. The next unit is free in ") {
		s.t.Errorf("the page of the key says %q", got)
	}
	if got := js[string](b, "document.body.innerText"); strings.Contains(got, "203.0.113.7") {
		s.t.Error("the page of a hash shows the key")
	}
	b.accessible()
	b.clean()
}

// states: each page is readable in each color and width while the program is calm, while it refuses
// and while its store is unavailable.
func (s *scene) states(b *tab) {
	for _, name := range []string{"calm", "busy", "outage"} {
		url := s.url
		if name == "calm" {
			url = strings.Replace(s.url, "/admin/", "/calm/", 1)
		}
		s.outage.Store(name == "outage")
		for _, page := range []string{"index", "limit", "key"} {
			b.do(chromedp.Navigate(url))
			switch page {
			case "index":
				b.until(`$("#status").innerText === "Live."`)
			case "limit":
				b.click(`a[href="limit?name=api"]`, "api")
			case "key":
				b.fill("input[name=q]", "tenant:acme"+kb.Enter)
				b.until(`$("h1")?.innerText === "Key tenant:acme"`)
			}
			for _, colors := range []string{"light", "dark"} {
				b.prefers(colors)
				b.accessible()
				for _, width := range []int64{1280, 390, 320} {
					b.do(chromedp.EmulateViewport(width, 900))
					if got := js[int64](b, `document.scrollingElement.scrollWidth`); got > width {
						s.t.Errorf("%s, %s: %d pixels wide on a screen of %d",
							name, page, got, width)
					}
					if width > 320 {
						b.screenshot(s.t.ArtifactDir(),
							fmt.Sprint(page, "-", name, "-", colors, "-", width))
					}
				}
			}
			b.do(chromedp.EmulateViewport(1100, 800))
		}
		if bad := js[bool](b, `$(".says.bad") !== null`); bad {
			s.t.Errorf("%s: the page of a key says that somebody has to act", name)
		}
	}
	b.do(chromedp.Navigate(s.url))
	if got := b.text("#problems"); got != "Redis has been unavailable: this process decides." ||
		js[string](b, "document.title") != "● Redis has been unavailable" {
		s.t.Errorf("the problems are %q", got)
	}
	s.outage.Store(false)
	b.until(`$("#problems").innerText === ""`)
	b.prefers("light")
	b.clean()
}

// used returns what the page of a key says of the budget.
func used(units, free string) string {
	return units + " of 1,000,000 used or held\n\n" + free + " free now"
}

// lookUp looks a key up.
func (s *scene) lookUp(b *tab, key string) {
	b.do(chromedp.Navigate(s.url))
	b.fill("input[name=q]", key+kb.Enter)
	b.until(fmt.Sprintf(`$("h1")?.innerText === %q`, "Key "+key))
}

// plain: without JavaScript the page shows the same, and its forms work.
func (s *scene) plain(b *tab) {
	call(b, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(s.url))
	if got := b.text("#status"); got != "As of the load of this page." {
		s.t.Errorf("the status without JavaScript is %q", got)
	}
	if js[int64](b, cell("api", admittedInQuarter)) == 0 || b.text("#top") == "" {
		s.t.Error("there are no numbers without JavaScript")
	}
	s.lookUp(b, "203.0.113.7")
	if got := b.text("main"); !strings.Contains(got, "5 of 5 used\n\nnext in ") {
		s.t.Errorf("the page of the key is %q", got)
	}
	b.clean()
}

// polls: behind a proxy that holds back events, at once or later, or answers something else for a
// while, the numbers of the chosen range move too, and the page says when it gets none.
func (s *scene) polls(b *tab) {
	defer s.events(nil)
	defer s.mute.Store(false)
	for i, answer := range []http.HandlerFunc{
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"limits": [], "state": [], "top": []}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		s.events(answer)
		b.do(chromedp.Navigate(s.url + "?range=60m"))
		if i == 1 { // until the page asks itself, no limit has decided
			js[bool](b, `($("#limits tr[data-limit='api'] a").remove(), true)`)
			b.until(`$("#limits tr[data-limit='api'] a") !== null`)
		}
		before := js[int64](b, cell("api", admittedInQuarter))
		b.until(fmt.Sprintf("%s > %d", cell("api", admittedInQuarter), before))
		for _, of := range []string{"events", "numbers"} {
			if query, _ := s.asked.Load(of); query != "range=60m" {
				s.t.Errorf("the page asks for %s of %q", of, query)
			}
		}
	}
	b.until(`$("#status").innerText === "Live."`)
	s.mute.Store(true)
	b.until(`$("#status").innerText.startsWith("The service does not answer.")`)
	s.mute.Store(false)
	b.until(`$("#status").innerText === "Live."`)
}

// policy: the browser refuses what the page's policy does, and tells the test so.
func (s *scene) policy(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	b.clean()
	js[bool](b, `(() => {
		const script = document.createElement("script");
		script.textContent = "document.title = 'run'";
		document.body.append(script);
		return true;
	})()`)
	if title := js[string](b, "document.title"); !strings.HasPrefix(title, "● ") ||
		!strings.HasSuffix(title, " % refused") {
		s.t.Error("an inline script ran")
	}
	for _, wrong := range b.seen() {
		if strings.HasPrefix(wrong, "violates script-src") {
			return
		}
	}
	s.t.Error("the browser reports no violation of the policy")
}

// equal: when the load has ended, the page has exactly the numbers that callers got.
func (s *scene) equal(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all int64
	for limit, c := range s.counted {
		all += c[0] + c[1]
		b.until(fmt.Sprintf("%s === %d && %s === %d",
			cell(limit, admittedInQuarter), c[0], cell(limit, refusedInQuarter), c[1]))
	}
	s.t.Logf("%d decisions of %d limits", all, len(s.counted))
}

// gone: when the program has ended, the page says so.
func (s *scene) gone(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	s.server.CloseClientConnections()
	s.server.Listener.Close()
	b.until(`$("#status").innerText.startsWith("The service does not answer.")`)
}
