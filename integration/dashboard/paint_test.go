package dashboard

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/integration/servers"
)

// BenchmarkFirstPaint is how long a browser that has nothing of the page of 300 busy limits takes
// from its request to the first paint of content: the median in milliseconds. An operation also
// opens a tab.
func BenchmarkFirstPaint(b *testing.B) {
	page, err := dashboard.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 300 {
		for call := range 1_000 + i {
			page.Observe(context.Background(), ratelimit.Observation{
				Limits: []ratelimit.Limit{
					ratelimit.PerMinute(fmt.Sprintf("team-%d-limit-%d", i%20, i), 10_000)},
				Results:  []ratelimit.Result{{Allowed: call%3 > 0}},
				Admitted: call%3 > 0,
			})
		}
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewUnstartedServer(page)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	defer page.Close() // first, or the server waits for the page's events to end
	url := fmt.Sprintf("http://%s:%d/", servers.HostName, listener.Addr().(*net.TCPAddr).Port)
	chrome := newBrowser(b)
	var paints []float64
	for b.Loop() {
		t := newTab(b, chrome)
		t.do(chromedp.Navigate(url))
		const painted = `performance.getEntriesByName("first-contentful-paint")`
		t.until(painted + ".length > 0")
		if got := t.text("body"); !strings.Contains(got, "of 300, in ") {
			b.Fatalf("the page is %q", got)
		}
		paints = append(paints, js[float64](t, painted+"[0].startTime"))
		t.do(chromedp.Navigate("about:blank"))
	}
	slices.Sort(paints)
	b.ReportMetric(paints[len(paints)/2], "ms-to-paint")
}
