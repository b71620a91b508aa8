package daemon

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// forwardAuth makes descriptors of requests that proxies ask about, as they do before they forward
// them: nginx with auth_request, Caddy with forward_auth, Traefik with ForwardAuth.
type forwardAuth struct {
	client  clientip.Source
	entries []entryFlag // after those that every request has
}

// entryFlag is an entry and where its value is found, as in tenant=X-Tenant.
type entryFlag struct{ name, source string }

// UnmarshalText is called by kong.
func (f *entryFlag) UnmarshalText(text []byte) error {
	name, source, ok := strings.Cut(string(text), "=")
	if !ok || name == "" || source == "" || strings.ContainsFunc(source, notInHeaderName) {
		return fmt.Errorf("%q is not of the form NAME=SOURCE, such as tenant=X-Tenant or "+
			"key=client", text)
	}
	*f = entryFlag{name, source}
	return nil
}

func notInHeaderName(c rune) bool {
	return !strings.ContainsRune("-_", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') &&
		(c < 'a' || c > 'z')
}

func newForwardAuth(entries []entryFlag, trusted []netip.Prefix) forwardAuth {
	f := forwardAuth{entries: entries}
	if len(trusted) > 0 {
		f.client = clientip.XForwardedFor(trusted...)
	}
	return f
}

// descriptor describes the request that r asks about. Entries whose header is missing are left out.
func (f forwardAuth) descriptor(r *http.Request) rules.Descriptor {
	d := make(rules.Descriptor, 0, 4+len(f.entries))
	for _, e := range append([]entryFlag{{"client", "client"}, {"method", "method"},
		{"host", "host"}, {"path", "path"}}, f.entries...) {
		if value := f.value(r, e.source); value != "" {
			d = append(d, rules.Entry{Name: e.name, Value: value, Path: e.source == "path"})
		}
	}
	return d
}

func (f forwardAuth) value(r *http.Request, source string) string {
	switch source {
	case "client":
		key, _ := f.client.Key(r) // the error is always nil
		return key
	case "method":
		return r.Header.Get("X-Forwarded-Method")
	case "host":
		host := url.URL{Host: r.Header.Get("X-Forwarded-Host")} // with a port that clients choose
		return canonical(host.Hostname())
	case "path":
		return paths.Of(r.Header.Get("X-Forwarded-Uri"))
	}
	return strings.Join(r.Header.Values(source), ", ")
}

// refusals are the statuses that a proxy can ask for. nginx passes on no others than 401 and 403.
var refusals = map[string]int{"": http.StatusTooManyRequests, "429": http.StatusTooManyRequests,
	"401": http.StatusUnauthorized, "403": http.StatusForbidden}

// check decides one unit of the request that a proxy asks about, whatever the method.
func (a *api) check(w http.ResponseWriter, r *http.Request) {
	refused, ok := refusals[r.URL.Query().Get("refused")]
	if !ok {
		invalid(`"refused" must be 401, 403 or 429.`).Write(w)
		return
	}
	requests := []decision.Request{{Descriptor: a.auth.descriptor(r), N: 1}}
	decided, err := a.deciding().Decide(
		r.Context(), requests, decision.Options{NoInFlight: true})
	if err != nil {
		a.failDecision(w, r, err, requests)
		return
	}
	var items []headers.Item
	for _, s := range decided.Parts[0].Statuses {
		if s.Asked && !s.Shadow && s.Limit.Algorithm != "block" {
			items = append(items, headers.Item{Result: s.Result})
		}
	}
	headers.Write(w.Header(), headers.Draft11, items...)
	writeDecided(w, refused, &decided)
}
