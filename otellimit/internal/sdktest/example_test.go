package sdktest

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/otellimit"
)

// Prometheus scrapes the metrics of a limiter.
func Example() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 2)))
	if err != nil {
		log.Fatal(err)
	}

	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		log.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	metrics, err := otellimit.New(provider)
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.Watch("main", func() any { return store.Stats() }); err != nil {
		log.Fatal(err)
	}
	limiter = limiter.WithObserver(metrics.Observe)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	for range 3 {
		if _, err := limiter.Allow(context.Background(), "user:42"); err != nil {
			log.Fatal(err)
		}
	}
	scrape := httptest.NewRecorder()
	handler.ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "ratelimit_store_keys{") ||
			strings.HasPrefix(line, "ratelimit_decisions_total{") &&
				strings.Contains(line, `ratelimit_outcome="refused"`) {
			name, _, _ := strings.Cut(line, "{")
			fmt.Println(name, line[strings.LastIndexByte(line, ' ')+1:len(line)-1])
		}
	}
	// Output:
	// ratelimit_decisions_total 1
	// ratelimit_store_keys 1
}
