package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// CheckPath is where proxies ask.
const CheckPath = "/v1/check"

// ForwardAuth makes descriptors of requests that proxies ask about, as they do before they forward
// them: nginx with auth_request, Caddy with forward_auth, Traefik with ForwardAuth, Envoy with
// ext_authz.
type ForwardAuth struct {
	profile  forwardProfile
	client   clientip.Source
	trusted  trustedProxies
	entries  []EntryFlag // those that every request has, and others
	warnings *forwardWarnings
}

// EntryFlag is an entry and where its value is found, as in tenant=X-Tenant.
type EntryFlag struct{ name, source string }

// UnmarshalText is called by kong.
func (f *EntryFlag) UnmarshalText(text []byte) error {
	name, source, ok := strings.Cut(string(text), "=")
	if !ok || name == "" || source == "" || strings.ContainsFunc(source, notInHeaderName) {
		return fmt.Errorf("%q is not of the form NAME=SOURCE, such as tenant=X-Tenant or "+
			"key=client", text)
	}
	*f = EntryFlag{name, source}
	return nil
}

func notInHeaderName(c rune) bool {
	return !strings.ContainsRune("-_", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') &&
		(c < 'a' || c > 'z')
}

// NewForwardAuth returns what reads the headers of a profile of forwardProfiles.
func NewForwardAuth(
	profile ProfileFlag, entries []EntryFlag, trusted []netip.Prefix, log *slog.Logger,
) *ForwardAuth {
	f := &ForwardAuth{
		profile: forwardProfiles[string(profile)], trusted: trusted,
		warnings: newForwardWarnings(log),
		entries: append([]EntryFlag{{"client", "client"}, {"method", "method"},
			{"host", "host"}, {"path", "path"}}, entries...),
	}
	f.trusted.warn(log)
	if len(trusted) > 0 {
		f.client = clientip.XForwardedFor(trusted...)
	}
	return f
}

// IsCheck reports whether a path is one at which the proxy asks: CheckPath, or with Envoy also one
// below it.
func (f *ForwardAuth) IsCheck(path string) bool {
	return path == CheckPath || f.profile.own && strings.HasPrefix(path, CheckPath+"/")
}

// descriptor describes the request that r asks about. Entries that r lacks are left out, and
// counted if limits need them. An error is a text for the proxy.
func (f *ForwardAuth) descriptor(
	r *http.Request, needed func(entry string) bool,
) (rules.Descriptor, error) {
	original, err := f.profile.read(r)
	if err != nil {
		return nil, err
	}
	d := make(rules.Descriptor, 0, len(f.entries))
	var checked []string // sources
	for _, e := range f.entries {
		value := f.value(r, original, e.source)
		if value != "" {
			d = append(d, rules.Entry{Name: e.name, Value: value, Path: e.source == "path"})
		}
		if needed(e.name) && !slices.Contains(checked, e.source) {
			checked = append(checked, e.source)
			f.checkValue(r, e.source, value)
		}
	}
	return d, nil
}

func (f *ForwardAuth) value(r *http.Request, original forwarded, source string) string {
	switch source {
	case "client":
		key, _ := f.client.Key(r) // the error is always nil
		return key
	case "method": // frameworks of Python and PHP take post for POST
		return strings.ToUpper(original.method)
	case "host":
		return original.host
	case "path":
		return paths.Of(original.target)
	}
	return strings.Join(r.Header.Values(source), ", ")
}

// refusals are the statuses that a proxy can ask for. nginx passes on no others than 401 and 403.
var refusals = map[string]int{"": http.StatusTooManyRequests, "429": http.StatusTooManyRequests,
	"401": http.StatusUnauthorized, "403": http.StatusForbidden}

// check decides one unit of the request that a proxy asks about, whatever the method.
func (a *API) check(w http.ResponseWriter, r *http.Request) {
	asked := ""
	if !a.proxies.profile.own { // whose query is that of the client
		asked = r.URL.Query().Get("refused")
	}
	refused, ok := refusals[asked]
	if !ok {
		invalid(`"refused" must be 401, 403 or 429.`).Write(w)
		return
	}
	needed := func(string) bool { return false }
	if set := a.decider.Set(); set != nil {
		needed = set.Uses
	}
	descriptor, err := a.proxies.descriptor(r, needed)
	if err != nil {
		invalid(err.Error() + ".").Write(w)
		return
	}
	requests := []decision.Request{{Descriptor: descriptor, N: 1}}
	decided, err := a.decider.Decide(
		r.Context(), requests, decision.Options{NoInFlight: true,
			MayUse: access.From(r.Context()).Only()})
	if errors.Is(err, decision.ErrNotAllowed) {
		a.audit.refuse(w, r, otherLimit, changesOf(notAllowed(err, requests)))
		return
	}
	if err != nil {
		d := &demand{requests, func(int) string { return "The request" }}
		a.failDecision(CheckPath, err, d).Write(w)
		return
	}
	var items []headers.Item
	for _, s := range decided.Parts[0].Statuses {
		if s.Asked && !s.Shadow && s.Limit.Algorithm != "block" {
			items = append(items, headers.Item{Result: s.Result})
		}
	}
	headers.Write(w.Header(), headers.Draft11, items...)
	decidedAnswer(refused, &decided).write(w, a.jitter)
}

// CheckEntries returns an error for an entry of --entry that no request would have, since it has
// another one of that name.
func CheckEntries(entries []EntryFlag) error {
	for i, e := range entries {
		if slices.Contains(rules.ForwardedEntries, e.name) {
			return fmt.Errorf("--entry=%s=%s: every request has the entry %s already; give that "+
				"of %s another name", e.name, e.source, e.name, e.source)
		}
		for _, earlier := range entries[:i] {
			if earlier.name == e.name {
				return fmt.Errorf("--entry=%s=%s: %s is an entry of %s already; give each its own "+
					"name", e.name, e.source, e.name, earlier.source)
			}
		}
	}
	return nil
}
