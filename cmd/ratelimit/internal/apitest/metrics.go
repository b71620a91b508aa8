package apitest

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Scrape returns what /metrics of a daemon shows.
func Scrape(t *testing.T, url string) string {
	t.Helper()
	return ScrapeWith(t, http.DefaultClient, url)
}

// ScrapeWith is Scrape with a client.
func ScrapeWith(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	res, err := client.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK ||
		!strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %v: %s", res.StatusCode, res.Header, body)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	if strings.Contains(string(body), Secret) {
		t.Errorf("it shows the key: %s", body)
	}
	return string(body)
}

// WantSeries reports series that are not in a scrape with that value. A series is its name and
// parts of its labels, separated by spaces.
func WantSeries(t *testing.T, scraped string, want map[string]string) {
	t.Helper()
series:
	for series, value := range want {
		for line := range strings.Lines(scraped) {
			if hasAll(line, strings.Fields(series)) && strings.HasSuffix(line, " "+value+"\n") {
				continue series
			}
		}
		t.Errorf("no %s %s in:\n%s", series, value, scraped)
	}
}

func hasAll(line string, parts []string) bool {
	for i, part := range parts {
		if i == 0 && !strings.HasPrefix(line, part+"{") && !strings.HasPrefix(line, part+" ") ||
			i > 0 && !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// DocumentedMetrics are the names that the page of metrics has in the section of the daemon.
func DocumentedMetrics(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What the daemon counts besides\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("`(ratelimit_\\w+)`").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}
