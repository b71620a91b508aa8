module github.com/truewindow/ratelimit/otellimit

go 1.25.0

require (
	github.com/truewindow/ratelimit v0.1.0
	go.opentelemetry.io/otel v1.21.0
	go.opentelemetry.io/otel/metric v1.21.0
	go.opentelemetry.io/otel/trace v1.21.0
)
