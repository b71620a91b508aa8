package caddylimit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// TestReload: a reload forgets nothing, also if it changes the max of the limit or the site. It
// counts from zero in a store with another URL.
func TestReload(t *testing.T) {
	s := newServer(t)
	site := func(store, most string) {
		t.Helper()
		s.load("limits {\nstore " + store + "\nlimit a " + most + "\n}")
	}
	site("memory", "3/1h")
	s.want([]int{200, 200, 200, 429})
	site("memory", "3/1h")
	s.want([]int{429})
	site("memory", "5/1h")
	s.want([]int{200, 200, 429})
	site("memory", "2/1d")
	s.want([]int{429})
	site("memory:?max-keys=1000", "5/1h")
	s.want([]int{200})
	if n := openStores(); n != 1 {
		t.Errorf("%d stores are open, want 1", n)
	}
	s.load("respond hello")
	if n := openStores(); n != 0 {
		t.Errorf("%d stores are open, want none", n)
	}
}

// TestWrongReload: a configuration that is refused leaves the one before in force, with its counts.
func TestWrongReload(t *testing.T) {
	s := newServer(t)
	s.load("limits {\nlimit a 2/1h\n}")
	s.want([]int{200})
	wrong := strings.Replace(string(s.adapt("limits {\nlimit a 9/1h\n}\nlimits {\nstore memory\n"+
		"limit b 1/1h\n}")), "1/1h", "1/1q", 1)
	if err := caddy.Load([]byte(wrong), true); err == nil {
		t.Fatal("the configuration was loaded")
	}
	s.want([]int{200, 429})
	if n, ok := stores.References("memory"); n != 1 || !ok {
		t.Errorf("the store has %d users, want 1", n)
	}
}

// TestSharedStore: handlers on one URL share a store, and limits of one name and key their history.
func TestSharedStore(t *testing.T) {
	s := newServer(t)
	s.load(`
handle /a {
	limits {
		limit shared 2/1h
	}
}
handle {
	limits {
		limit shared 2/1h
		limit alone 2/1h
	}
}`)
	for _, path := range []string{"/a", "/b"} {
		if a := s.get(path); a.StatusCode != 200 {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
	s.want([]int{429})
	if n := openStores(); n != 1 {
		t.Errorf("%d stores are open, want 1", n)
	}
}

func openStores() (n int) {
	stores.Range(func(_, _ any) bool { n++; return true })
	return n
}

// TestMetrics: each decision counts by limit, and a reload neither registers twice nor forgets.
func TestMetrics(t *testing.T) {
	s := newServer(t)
	decisions.Reset()
	const site = `
limits /api {
	limit few 1/1h
	limit many 9/1h
	limit calls 9 {
		algorithm in-flight
	}
}
metrics /metrics`
	counted := func(limit, op, outcome string, want int) {
		t.Helper()
		line := fmt.Sprintf(`ratelimit_decisions_total{ratelimit_limit=%q,ratelimit_op=%q,`+
			`ratelimit_outcome=%q,ratelimit_source="store"} %d`+"\n", limit, op, outcome, want)
		if text := s.get("/metrics").text; !strings.Contains(text, line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
	s.load(site)
	for range 3 {
		s.get("/api")
	}
	counted("few", "take", "admitted", 1)
	counted("few", "take", "refused", 2)
	counted("many", "take", "refused_by_other", 2)
	counted("calls", "hold", "admitted", 1)
	counted("calls", "hold", "refused_by_other", 2)
	s.load(site + "\nlimits /other {\nlimit few 1/1h\n}")
	s.get("/api")
	counted("few", "take", "refused", 3)
}

// TestMetricsOfSome: a limit that does not apply to a request counts nothing, and the others count
// for themselves.
func TestMetricsOfSome(t *testing.T) {
	s := newServer(t)
	decisions.Reset()
	s.load(`
limits /api {
	limit free 9/1h {
		units {query.units}
	}
	limit few 1/1h
}
metrics /metrics`)
	s.get("/api?units=0")
	s.get("/api?units=0")
	text := s.get("/metrics").text
	for _, outcome := range []string{"admitted", "refused"} {
		line := fmt.Sprintf(`{ratelimit_limit="few",ratelimit_op="take",ratelimit_outcome=%q,`+
			`ratelimit_source="store"} 1`+"\n", outcome)
		if !strings.Contains(text, line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, `"free"`) {
		t.Errorf("the limit that does not apply has counted:\n%s", text)
	}
}
