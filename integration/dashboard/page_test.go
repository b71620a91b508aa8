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
		{"plain", (*scene).plain},
		{"polls", (*scene).polls},
		{"policy", (*scene).policy},
		{"equal", (*scene).equal}, // it ends the load
		{"gone", (*scene).gone},   // it ends the program
	} {
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
	return fmt.Sprintf(`+$("#limits tr[data-limit='%s']").cells[%d].innerText`, limit, column)
}

// Columns of the table of limits.
const admittedInQuarter, refusedInQuarter = 6, 7

// moves: numbers move without a load of the page, a new limit and a refused key appear, and the
// browser asks nobody else and keeps nothing.
func (s *scene) moves(b *tab) {
	b.until(`$("#status").innerText === "Live."`)
	before := js[int64](b, cell("api", admittedInQuarter))
	b.until(fmt.Sprintf("%s > %d", cell("api", admittedInQuarter), before))
	b.until(`$("#top").innerText.includes("login")`)
	b.until(cell("api-300", refusedInQuarter) + " > 0")
	if got := b.text(`#limits tr[data-limit="api-300"]`); !strings.Contains(got, "(trial)") ||
		!strings.Contains(got, "refused only here") {
		s.t.Errorf("the trial's row is %q", got)
	}
	if b.text("#top") == "" || strings.Contains(b.text("#top"), "203.0.113.7") {
		s.t.Errorf("the most refused keys are %q", b.text("#top"))
	}
	_, err := s.block.Force(s.t.Context(), "user:7", algorithm.BlockFor(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	b.until(`$("#limits tr[data-limit='abuse']") !== null`)
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
	b.do(chromedp.EmulateViewport(320, 640))
	if width := js[int](b, `document.scrollingElement.scrollWidth`); width > 320 {
		s.t.Errorf("the page is %d pixels wide on a screen of 320", width)
	}
	b.screenshot(s.t.ArtifactDir(), "narrow")
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
	if got := b.text("main"); !strings.Contains(got, "300000 of 1000000 units are free") {
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
	if got := b.text("main"); !strings.Contains(got, "700000 of 1000000 units are free") {
		s.t.Errorf("after the release the page of the key is %q", got)
	}
	b.click("form:has(input[name=limit][value=tokens]) button[value=reset]", "Delete what is")
	b.click("button[value=reset]", "Done")
	s.lookUp(b, "user:42")
	if got := b.text("main"); !strings.Contains(got, "1000000 of 1000000 units are free") {
		s.t.Errorf("after the reset the page of the key is %q", got)
	}
	b.click("button[value=block]", "Block the key")
	b.click("button[value=block]", "Done")
	s.lookUp(b, "user:42")
	if got := b.text("main"); !strings.Contains(got, "Blocked for 14m") &&
		!strings.Contains(got, "Blocked for 15m0s") {
		s.t.Errorf("after the block the page of the key is %q", got)
	}
	b.clean()
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
	if got := b.text("main"); !strings.Contains(got, "0 of 5 units are free") {
		s.t.Errorf("the page of the key is %q", got)
	}
	b.clean()
}

// polls: behind a proxy that holds back events, at once or later, or answers something else for a
// while, the numbers move too.
func (s *scene) polls(b *tab) {
	defer s.events(nil)
	for _, answer := range []http.HandlerFunc{
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
		b.do(chromedp.Navigate(s.url))
		before := js[int64](b, cell("api", admittedInQuarter))
		b.until(fmt.Sprintf("%s > %d", cell("api", admittedInQuarter), before))
	}
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
	if title := js[string](b, "document.title"); title != "Limits" {
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
