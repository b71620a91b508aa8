package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/truewindow/ratelimit/cmd/internal/version"
)

// lastExport is how long the last export may take.
const lastExport = 5 * time.Second

// otlp returns a reader that sends metrics with OTLP, or nothing without --otlp. The variables of
// OpenTelemetry configure it.
func (c *Serve) otlp(ctx context.Context, log *slog.Logger) ([]sdkmetric.Option, error) {
	if !c.OTLP {
		return nil, nil
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	about, err := aboutService(ctx)
	if err != nil {
		return nil, err
	}
	reader := sdkmetric.NewPeriodicReader(logged{exporter, log})
	return []sdkmetric.Option{
		sdkmetric.WithReader(reader), sdkmetric.WithResource(about)}, nil
}

// aboutService returns what OTLP says of the service.
func aboutService(ctx context.Context) (*resource.Resource, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "ratelimit"),
			attribute.String("service.version", version.String())),
		resource.WithFromEnv()) // which overrides the name
	if err != nil {
		return nil, fmt.Errorf("OTLP: %w", err)
	}
	return about, nil
}

// logged is an exporter whose errors are in the log of the service.
type logged struct {
	sdkmetric.Exporter
	log *slog.Logger
}

func (l logged) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if err := l.Exporter.Export(ctx, m); err != nil {
		l.log.Warn("the metrics are not sent with OTLP", "error", err)
	}
	return nil
}
