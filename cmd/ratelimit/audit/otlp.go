package audit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
)

// OTLP is a [Sink] that sends events as logs with OTLP over HTTP. The variables of OpenTelemetry
// configure it.
type OTLP struct {
	provider *sdklog.LoggerProvider
	logger   log.Logger
}

// NewOTLP returns a sink for events of a service. Errors of its exports go to failures.
func NewOTLP(ctx context.Context, about *resource.Resource, failures *slog.Logger) (*OTLP, error) {
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(about),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(reported{exporter, failures})))
	return &OTLP{provider, provider.Logger("github.com/truewindow/ratelimit/cmd/ratelimit/audit")},
		nil
}

// reported is an exporter whose errors are in the log of the service.
type reported struct {
	sdklog.Exporter
	failures *slog.Logger
}

func (r reported) Export(ctx context.Context, records []sdklog.Record) error {
	if err := r.Exporter.Export(ctx, records); err != nil {
		r.failures.Warn("the audit is not sent with OTLP", "error", err, "events", len(records))
	}
	return nil
}

// Write queues an event. If too many wait, the oldest are dropped.
func (o *OTLP) Write(e *Event, line []byte) {
	var r log.Record
	r.SetTimestamp(e.Time)
	r.SetEventName("ratelimit.audit")
	r.SetSeverity(log.SeverityInfo)
	if e.Outcome != Done {
		r.SetSeverity(log.SeverityWarn)
	}
	r.SetBody(attribute.StringValue(string(line[:len(line)-1])))
	r.AddAttributes(attribute.String("ratelimit.audit.action", e.Action),
		attribute.String("ratelimit.audit.outcome", e.Outcome),
		attribute.String("ratelimit.audit.actor", e.Actor.Name))
	o.logger.Emit(context.Background(), r)
}

// Close sends what waits, for five seconds at most.
func (o *OTLP) Close() error {
	const last = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), last)
	defer cancel()
	return o.provider.Shutdown(ctx)
}
