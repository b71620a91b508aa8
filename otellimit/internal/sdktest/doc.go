// Package sdktest tests package otellimit with the SDK of OpenTelemetry and with Prometheus. It is
// a package of its own so that their modules stay out of the go.sum of those who import otellimit.
package sdktest
