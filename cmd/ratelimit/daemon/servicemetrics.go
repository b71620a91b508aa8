package daemon

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
	"github.com/truewindow/ratelimit/cmd/ratelimit/xds"
)

// A serviceMetric is a metric that is read when metrics are collected.
type serviceMetric struct {
	name, unit, what string
	counter          bool
}

var serviceMetrics = []serviceMetric{
	{"ratelimit.descriptors", "{descriptor}", "Descriptors that were decided.", true},
	{"ratelimit.one_by_one", "{call}",
		"Calls whose limits the store could not decide together.", true},
	{"ratelimit.shadow.refused", "{decision}",
		"Decisions that a limit in shadow mode would have refused.", true},
	{"ratelimit.warned", "{decision}", "Decisions with a warning.", true},
	{"ratelimit.envoy.calls", "{call}", "Calls of Envoy's protocol and Kuadrant's.", true},
	{"ratelimit.envoy.unknown_domain", "{call}",
		"Calls admitted because no file has their domain.", true},
	{"ratelimit.envoy.negative_hits", "{descriptor}",
		"Descriptors with is_negative_hits, which give nothing back.", true},
	{"ratelimit.envoy.not_utf8", "{call}",
		"Calls with a text that is not UTF-8, which are decided as others.", true},
	{"ratelimit.envoy.looks", "{call}", "Calls with hits_addend 0 under limits of files that " +
		"charge nothing beyond a limit.", true},
	{"ratelimit.forward_auth.missing", "{request}",
		"Requests of proxies that lack an entry which limits need.", true},
	{"ratelimit.forward_auth.trusted_clients", "{request}",
		"Requests of clients in a network of --trusted-proxy.", true},
	{"ratelimit.config.loaded.timestamp", "s",
		"When the limits in force were loaded, in Unix time.", false},
	{"ratelimit.config.valid", "{config}",
		"1 if the last load succeeded, else 0.", false},
	{"ratelimit.config.connected", "{stream}",
		"1 while the server of xDS is connected, else 0.", false},
	{"ratelimit.config.failures", "{load}", "Loads of the limits that failed.", true},
	{"ratelimit.config.restarted", "{limit}",
		"Limits whose count began at zero at a load in place of going on.", true},
	{"ratelimit.config.limits", "{limit}", "Limits of files in force.", false},
	{"ratelimit.credentials.valid", "{file}",
		"1 if the last load of a file of tokens or certificates succeeded, else 0.", false},
	{"ratelimit.credentials.failures", "{load}",
		"Loads of a file of tokens or certificates that failed.", true},
	{"ratelimit.certificate.expiry.timestamp", "s",
		"When a certificate of the service, or the last of a file of authorities, expires, in " +
			"Unix time.", false},
	{"ratelimit.audit.lost", "{event}", "Events of the audit that could not be written.", true},
	{"ratelimit.connections.failed", "{connection}",
		"Connections that ended in the handshake of TLS or in the head of a request.", true},
}

// A serviceReader reads what the parts of a service count.
type serviceReader struct {
	limits      *limits
	credentials *credentials
	proxies     *httpapi.ForwardAuth
	envoy       *envoy.Service // or nil
	failed      *failedConnections
	trail       *trail
}

// watchService exports what r reads, until m is closed.
func (m *metrics) watchService(r *serviceReader) error {
	instruments := make(map[string]metric.Int64Observable)
	var all []metric.Observable
	var problems []error
	for _, s := range serviceMetrics {
		var o metric.Int64Observable
		var err error
		if s.counter {
			o, err = m.meter.Int64ObservableCounter(
				s.name, metric.WithUnit(s.unit), metric.WithDescription(s.what))
		} else {
			o, err = m.meter.Int64ObservableGauge(
				s.name, metric.WithUnit(s.unit), metric.WithDescription(s.what))
		}
		instruments[s.name] = o
		all, problems = append(all, o), append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r.read(func(name string, value int64, labels ...attribute.KeyValue) {
			o.ObserveInt64(instruments[name], value, metric.WithAttributes(labels...))
		})
		return nil
	}, all...)
	return err
}

func (r *serviceReader) read(add addFunc) {
	r.readDecider(add)
	readForwardAuth(add, r.proxies.Stats())
	if r.envoy != nil {
		readEnvoy(add, r.envoy.Stats())
	}
	r.readConfig(add)
	r.credentials.observe(add)
	r.failed.read(add)
	r.trail.observe(add)
}

type addFunc func(name string, value int64, labels ...attribute.KeyValue)

// readDecider has a label for the limits in force only: a limit that has left is not shown.
func (r *serviceReader) readDecider(add addFunc) {
	s := r.limits.decider.Stats()
	add("ratelimit.descriptors", s.Matched, attribute.Bool("ratelimit.matched", true))
	add("ratelimit.descriptors", s.Unmatched, attribute.Bool("ratelimit.matched", false))
	add("ratelimit.one_by_one", s.OneByOne)
	set := r.limits.decider.Set()
	if set == nil {
		return
	}
	for _, l := range set.Limits() {
		counts, label := s.Limits[l.Name], attribute.String("ratelimit.limit", l.Name)
		if l.Shadow || counts.ShadowRefused > 0 {
			add("ratelimit.shadow.refused", counts.ShadowRefused, label)
		}
		if l.Warn > 0 {
			add("ratelimit.warned", counts.Warned, label)
		}
	}
}

func readForwardAuth(add addFunc, s httpapi.ForwardStats) {
	for source, count := range s.Missing {
		add("ratelimit.forward_auth.missing", count, attribute.String("ratelimit.entry", source))
	}
	add("ratelimit.forward_auth.trusted_clients", s.TrustedClients)
}

func readEnvoy(add addFunc, s envoy.Stats) {
	for outcome, count := range map[string]int64{"ok": s.OK, "over_limit": s.Over,
		"shadow": s.Shadow, "invalid": s.Invalid, "failed": s.Failed, "ended": s.Ended} {
		add("ratelimit.envoy.calls", count, attribute.String("ratelimit.outcome", outcome))
	}
	add("ratelimit.envoy.unknown_domain", s.Unknown)
	add("ratelimit.envoy.negative_hits", s.Negative)
	add("ratelimit.envoy.looks", s.Looks)
	add("ratelimit.envoy.not_utf8", s.NotUTF8)
}

// readConfig adds nothing without files.
func (r *serviceReader) readConfig(add addFunc) {
	if r.limits.follows == nil {
		return
	}
	s := r.limits.follows.Status()
	if !s.Loaded.IsZero() { // with FORCE_START_WITHOUT_INITIAL_CONFIG there may be no load yet
		add("ratelimit.config.loaded.timestamp", s.Loaded.Unix())
	}
	add("ratelimit.config.valid", oneIfLoaded(s))
	if f, ok := r.limits.follows.(*xds.Follower); ok {
		add("ratelimit.config.connected", map[bool]int64{true: 1}[f.Connected()])
	}
	add("ratelimit.config.failures", int64(s.Failed))
	add("ratelimit.config.restarted", r.limits.restarted.Load())
	add("ratelimit.config.limits", int64(len(r.limits.config.Load().Limits())))
}

// oneIfLoaded returns 1 if the last load succeeded, else 0.
func oneIfLoaded(s watch.Status) int64 {
	if s.Err != nil {
		return 0
	}
	return 1
}
