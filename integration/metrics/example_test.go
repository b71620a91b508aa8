package metrics

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
	"github.com/truewindow/ratelimit/topkeys"
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

// The most refused keys are found by a second observer.
func Example_topKeys() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 2)))
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := otellimit.New(sdkmetric.NewMeterProvider())
	if err != nil {
		log.Fatal(err)
	}
	keys, err := topkeys.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter = limiter.WithObserver(func(ctx context.Context, o ratelimit.Observation) {
		metrics.Observe(ctx, o)
		keys.Observe(ctx, o)
	})
	for range 5 {
		if _, err := limiter.Allow(context.Background(), "user:42"); err != nil {
			log.Fatal(err)
		}
	}
	for _, limit := range keys.Top() {
		for _, k := range limit.Keys {
			fmt.Printf("%s: %t %.0f\n", limit.Name, k.Name == keys.Name("user:42"), k.Count)
		}
	}
	// Output:
	// login: true 3
}
