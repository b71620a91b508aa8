package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/truewindow/ratelimit/integration/servers"
)

const chromium = "chromedp/headless-shell:stable"

type browser struct{ ctx context.Context }

// newBrowser starts a browser.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	container := servers.StartOther(t, chromium, nil)
	address := net.JoinHostPort(container.IP, "9222")
	servers.Await(t, func() (bool, error) {
		answer, err := http.Get("http://" + address + "/json/version")
		if err != nil {
			return false, nil
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
	ctx, cancel := remote.NewAllocator(t.Context(), "ws://"+address+"/")
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return &browser{ctx}
}

// A tab is a tab of the browser. Its methods fail the test on errors.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu    sync.Mutex
	wrong []string // violations of the page's policy and errors
	hosts []string // that were asked
}

// newTab opens a tab in a profile of its own.
func newTab(t testing.TB, b *browser) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	opened := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, opened.listen); err != nil {
		t.Fatal(err)
	}
	call(opened, audits.Enable, cdp.Empty{})
	call(opened, cdplog.Enable, cdp.Empty{})
	call(opened, network.Enable, network.EnableParams{})
	opened.do(chromedp.EmulateViewport(1100, 800))
	return opened
}

func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *audits.EventIssueAdded:
		if v := e.Issue.Details.ContentSecurityPolicyIssueDetails; v != nil {
			b.wrong = append(b.wrong, "violates "+v.ViolatedDirective+": "+v.BlockedURL)
		}
	case *cdplog.EventEntryAdded:
		b.wrong = append(b.wrong, e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, "exception: "+e.ExceptionDetails.Text)
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && !slices.Contains(b.hosts, u.Host) {
			b.hosts = append(b.hosts, u.Host)
		}
	}
}

// seen returns what was wrong since the last call.
func (b *tab) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := b.wrong
	b.wrong = nil
	return wrong
}

// clean checks that nothing has been wrong.
func (b *tab) clean() {
	b.t.Helper()
	for _, wrong := range b.seen() {
		b.t.Error(wrong)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, servers.FaultTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func run[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	result, err := try(b, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func try[T any](b *tab, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, servers.FaultTimeout)
	defer cancel()
	return chromedp.Run(ctx, a)
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, servers.FaultTimeout)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// js evaluates an expression with the functions $ and $$, which return what is selected.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, evaluation[T](expression))
}

func evaluation[T any](expression string) chromedp.Action[T] {
	return chromedp.Evaluate[T](`(($, $$) => (` + expression +
		`))(s => document.querySelector(s), s => [...document.querySelectorAll(s)])`)
}

// until polls until an expression is true. The page may change while it is evaluated.
func (b *tab) until(expression string) {
	b.t.Helper()
	done := false
	defer func() {
		if !done {
			b.t.Log(b.text("body"))
		}
	}()
	servers.Within(b.t, func() bool {
		ok, err := try(b, evaluation[bool](expression))
		if err != nil && !strings.Contains(err.Error(), "navigated") {
			b.t.Fatal(err)
		}
		return ok
	}, expression)
	done = true
}

// text returns the text of what is selected, or "" if there is nothing.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return js[string](b, fmt.Sprintf(`$(%q)?.innerText ?? ""`, selector))
}

// press presses keys where the focus is.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// fill types a text into an input.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// click clicks on a link or a button, and waits for the page whose heading begins with a text.
func (b *tab) click(selector, heading string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
	b.until(fmt.Sprintf(`$("h1")?.innerText.startsWith(%q) ?? false`, heading))
}

// prefers sets the colors that the user prefers, dark or light.
func (b *tab) prefers(colors string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colors}},
	})
}

// picture keeps a screenshot of the whole page in the folder that RATELIMIT_PAGE_PNG names.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.screenshot(cmp.Or(os.Getenv("RATELIMIT_PAGE_PNG"), b.t.ArtifactDir()), name)
}

// screenshot keeps a screenshot of the whole page in a folder.
func (b *tab) screenshot(dir, name string) {
	b.t.Helper()
	png := run(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// A node is what assistive technology sees of an element.
type node struct{ role, name string }

// nodes returns the accessibility tree.
func (b *tab) nodes() (all []node) {
	b.t.Helper()
	value := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal(v.Value, &s)
		}
		return strings.TrimSpace(s)
	}
	for _, n := range call(b, accessibility.GetFullAXTree,
		accessibility.GetFullAXTreeParams{}).Nodes {
		if !n.Ignored {
			all = append(all, node{value(n.Role), value(n.Name)})
		}
	}
	return all
}

// named are the roles that need a name.
var named = []string{
	"RootWebArea", "link", "button", "textbox", "image", "heading", "columnheader", "rowheader",
	"region",
}

// accessible checks a page by its accessibility tree and by the contrast of its texts.
func (b *tab) accessible() {
	b.t.Helper()
	headings, mains := 0, 0
	for _, n := range b.nodes() {
		if n.name == "" && slices.Contains(named, n.role) {
			b.t.Errorf("a %s has no name", n.role)
		}
		if n.role == "main" {
			mains++
		}
		if n.role == "heading" {
			headings++
		}
	}
	if headings == 0 || mains != 1 {
		b.t.Errorf("%d headings and %d main parts", headings, mains)
	}
	for _, wrong := range js[[]string](b, problems) {
		b.t.Error(wrong)
	}
}

// problems is an expression for what the tree does not show: the formulas of contrast are those of
// WCAG 2.2, which wants a contrast of 4.5.
const problems = `(() => {
	const wrong = [];
	if ($$("h1").length !== 1) wrong.push($$("h1").length + " elements h1");
	if (document.documentElement.lang !== "en") wrong.push("no language");
	const ids = $$("[id]").map((e) => e.id);
	if (new Set(ids).size !== ids.length) wrong.push("an id twice");
	for (const td of $$("table")) {
		if (!td.querySelector("th[scope]")) wrong.push("a table without headers");
	}
	const channel = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	const luminance = (color) => {
		const [r, g, b] = color.match(/[\d.]+/g).map((v) => channel(v / 255));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const back = (e) => {
		for (; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor;
			if (!color.endsWith(", 0)")) return color;
		}
		return "rgb(255, 255, 255)";
	};
	for (const e of $$("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		if (!e.checkVisibility() || e.matches("button, script, meter")) continue;
		const [light, dark] = [luminance(getComputedStyle(e).color), luminance(back(e))]
			.sort((a, b) => b - a);
		const contrast = (light + 0.05) / (dark + 0.05);
		if (contrast < 4.5) wrong.push("contrast " + contrast.toFixed(1) + ": " + e.innerText);
	}
	return wrong;
})()`
