package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/otellimit"
)

// metrics answers scrapes by Prometheus. It shows no key.
type metrics struct {
	*otellimit.Metrics
	provider *sdkmetric.MeterProvider
	meter    metric.Meter
	scrape   http.Handler
	seconds  metric.Float64Histogram // of HTTP requests
}

// newMetrics returns the metrics of a service on a store.
func (c *Serve) newMetrics(
	ctx context.Context, store *guardedStore, log *slog.Logger,
) (*metrics, error) {
	options, err := c.otlp(ctx, log)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(options...)
	if err != nil {
		return nil, err
	}
	return m, m.watchStore(store)
}

// newMetrics returns metrics for Prometheus and, with options, for other readers.
func newMetrics(options ...sdkmetric.Option) (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	// Files and fixed lists bound the labels, and otellimit the names of limits.
	provider := sdkmetric.NewMeterProvider(append(options, sdkmetric.WithReader(exporter),
		sdkmetric.WithCardinalityLimit(0),
		sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))...)
	m := &metrics{provider: provider,
		scrape: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	if m.Metrics, err = otellimit.New(provider); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m.meter = provider.Meter("github.com/truewindow/ratelimit/cmd/ratelimit/daemon")
	m.seconds, err = m.meter.Float64Histogram(
		"http.server.request.duration", metric.WithUnit("s"),
		metric.WithDescription("How long HTTP requests took."),
		metric.WithExplicitBucketBoundaries(
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	return m, err
}

// Close sends what OTLP has not sent yet, and ends the collection.
func (m *metrics) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	return errors.Join(m.provider.Shutdown(ctx), m.Metrics.Close())
}

// watchStore exports the statistics of a store and of the layers around it.
func (m *metrics) watchStore(s *guardedStore) error {
	problems := []error{m.Watch("main", s.Stats)}
	if s.breaker != nil {
		problems = append(problems, m.Watch("breaker", func() any { return s.breaker.Stats() }))
	}
	if s.leases != nil {
		problems = append(problems, m.Watch("leases", func() any { return s.leases.Stats() }))
	}
	if s.local != nil {
		problems = append(problems, m.Watch("local", func() any { return s.local.Stats() }))
	}
	return errors.Join(problems...)
}

// methods are the values of the label for the method; any other method is _OTHER.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost}

// measure counts and times the requests that next answers. It is outside of what refuses requests.
func (m *metrics) measure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		noteRequest(r)
		answer := &statusWriter{ResponseWriter: w}
		unwritten := http.StatusInternalServerError // the status if the handler panics
		defer func() {
			method := r.Method
			if !slices.Contains(methods, method) {
				method = "_OTHER"
			}
			m.seconds.Record(r.Context(), time.Since(began).Seconds(), metric.WithAttributes(
				attribute.String("http.route", httpapi.RouteOf(r.URL.Path)),
				attribute.String("http.request.method", method),
				attribute.Int("http.response.status_code", cmp.Or(answer.status, unwritten))))
		}()
		next.ServeHTTP(answer, r)
		unwritten = http.StatusOK
	})
}

// before answers requests for /metrics, and passes the rest on.
func (m *metrics) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != httpapi.MetricsPath:
			next.ServeHTTP(w, r)
		case httpapi.MethodIsOneOf(w, r, http.MethodGet, http.MethodHead):
			w.Header().Set("Cache-Control", "no-store")
			m.scrape.ServeHTTP(w, r)
		}
	})
}

// statusWriter remembers the status of an answer, 0 if none was written.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
