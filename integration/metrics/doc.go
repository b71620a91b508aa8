// Package metrics tests package otellimit with the SDK of OpenTelemetry and with Prometheus,
// which users of otellimit need not require.
package metrics
