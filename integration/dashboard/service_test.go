package dashboard

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const serviceLimits = `
limits:
  - {name: tenants, when: {tenant: "*"}, key: [tenant], max: 100/1h}
  - {name: tenants-10, when: {tenant: "*"}, key: [tenant], max: 10/1h, mode: shadow}
`

// TestService: the page of "ratelimit serve" asks for the token, shows the file in force and why
// the next one is not, an outage of the store, and its end.
func TestService(t *testing.T) {
	chrome := newBrowser(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	readers := filepath.Join(t.TempDir(), "readers")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, serviceLimits)
	write(readers, "a-token-to-read-with")
	store := servers.Start(t, servers.Images()[0])
	d := daemon.Start(t, daemon.Build(t), "--config="+file, "--addr=0.0.0.0:0",
		"--host="+servers.HostName, "--store=redis://"+store.Addr, "--on-failure=local",
		"--instances=2", "--top-keys=10", "--read-token-file="+readers)
	stop := decide(t, d)
	defer stop()

	b := newTab(t, chrome)
	address := servers.HostName + ":" + d.Port() + "/dashboard/"
	b.do(chromedp.Navigate("http://" + address))
	if got := b.text("body"); !strings.Contains(got, "Unauthorized") {
		t.Errorf("without a token a viewer sees %q", got)
	}
	b.seen()
	// As a user types it: the browser sends it from now on.
	b.do(chromedp.Navigate("http://viewer:"+daemon.Token+"@"+address),
		chromedp.Navigate("http://"+address))
	b.until(`$("#status").innerText === "Live."`)
	b.until(cell("tenants", refusedInQuarter) + " > 0")
	b.until(cell("tenants-10", refusedInQuarter) + " > 0")
	b.until(`$("#top").innerText.includes("tenants")`)
	b.accessible()
	b.screenshot(t.ArtifactDir(), "service")

	write(file, "limits: [{name: tenants, max: 1/0h}]")
	d.Signal(t, syscall.SIGHUP)
	b.until(`$("#problems").innerText.startsWith("limits.yaml line 1 is wrong: ")`)
	b.until(`/ The limits of .* stay in force\. Correct /.test($("#problems").innerText)`)
	write(file, serviceLimits)
	d.Signal(t, syscall.SIGHUP)
	b.until(`$("#problems").innerText === "" && $("#says").innerText.startsWith("Deciding on ")`)

	store.Pause(t)
	b.until(`/ has been unavailable since .*: each of 2 processes decides by itself, /` +
		`.test($("#problems").innerText)`)
	b.until(`document.title.startsWith("● ") && document.title.endsWith(" has been unavailable")`)
	b.until(`$("#limits tr[data-limit=tenants]").innerText.includes(" decided locally")`)
	b.accessible()
	store.Unpause(t)
	b.until(`$("#problems").innerText === "" && $("#says").innerText.startsWith("Deciding on ")`)

	b.do(chromedp.Navigate("http://" + address))
	b.fill("input[name=q]", "tenant=acme"+kb.Enter)
	b.until(`$("h1")?.innerText === "Key tenant=acme"`)
	if got := b.text("main"); !strings.Contains(got, "tenants refuses this key: 100 of 100 used") {
		t.Errorf("the page of the key is %q", got)
	}
	stop()
	b.click("form:has(input[name=limit][value=tenants]) button[value=reset]", "Delete what is")
	b.click("button[value=reset]", "Done")
	if !strings.Contains(d.Logged(), `"action":"reset"`) {
		t.Error("the log has no line of the reset")
	}
	b.clean()
}

// decide asks for decisions until stop is called.
func decide(t *testing.T, d *daemon.Daemon) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			status, body, _ := d.PostJSON(t, "/v1/decide", `{"descriptor":{"tenant":"acme"}}`)
			if status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Errorf("status %d: %s", status, body)
			}
		}
	}()
	return sync.OnceFunc(func() { cancel(); <-ended })
}
