package httpapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

// warnInterval is the least time between two lines of the log with the same warning.
const warnInterval = time.Minute

// forwardWarnings counts requests of proxies that lack what limits need, and logs them now and
// then.
type forwardWarnings struct {
	log     *slog.Logger
	missing map[string]*forwardWarning // by the source of an entry: client, method, host, path
	trusted forwardWarning             // clients in a network of --trusted-proxy
}

type forwardWarning struct {
	requests atomic.Int64
	lines    lograte.Limit
}

func newForwardWarnings(log *slog.Logger) *forwardWarnings {
	w := &forwardWarnings{log: log, missing: make(map[string]*forwardWarning)}
	for _, source := range []string{"client", "method", "host", "path"} {
		w.missing[source] = &forwardWarning{lines: lograte.Limit{Every: warnInterval}}
	}
	w.trusted.lines.Every = warnInterval
	return w
}

// count counts a request, and returns how many lines of the log were suppressed if one is due.
func (w *forwardWarning) count() (due bool, suppressed int) {
	w.requests.Add(1)
	return w.lines.Pass(time.Now())
}

// checkValue counts r if the value of a source that limits need is missing or wrong. The line of
// the log has no address: that of a client is a key.
func (f *ForwardAuth) checkValue(r *http.Request, source, value string) {
	missing := f.warnings.missing[source]
	header, flag := f.profile.header(source), "--forward-auth"
	switch {
	case missing == nil: // an optional header of --entry
		return
	case source != "client":
		if value != "" {
			return
		}
	case !f.trusted.includesPeer(r): // the peer is the client, or a proxy that is not trusted
		flag = "--trusted-proxy"
	case len(r.Header.Values(xForwardedFor)) > 0:
		if f.trusted.contain(f.client.Addr(r)) {
			if due, suppressed := f.warnings.trusted.count(); due {
				f.warnings.log.Warn("a client is in a network of --trusted-proxy, so it can "+
					"choose the address that it is limited by: name the proxies' addresses",
					"header", header, "suppressed", suppressed)
			}
		}
		return
	}
	if due, suppressed := missing.count(); due {
		f.warnings.log.Warn("a request of a proxy lacks an entry that limits need: see "+flag,
			"entry", source, "header", header, "suppressed", suppressed)
	}
}

// ForwardStats are counts of requests of proxies since the start.
type ForwardStats struct {
	Missing        map[string]int64 // without an entry that limits need, by its source
	TrustedClients int64            // of clients in a network of --trusted-proxy
}

// Stats returns the counts.
func (f *ForwardAuth) Stats() ForwardStats {
	s := ForwardStats{make(map[string]int64), f.warnings.trusted.requests.Load()}
	for source, w := range f.warnings.missing {
		s.Missing[source] = w.requests.Load()
	}
	return s
}
