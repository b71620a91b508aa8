package httpapi

import (
	"maps"
	"slices"
	"strings"
)

// PagePath is where the page of limits is, with all that belongs to it.
const PagePath = "/dashboard/"

// IsPage reports whether a path is of the page.
func IsPage(path string) bool { return strings.HasPrefix(path, PagePath) }

// MetricsPath is where Prometheus reads metrics. An API does not answer it.
const MetricsPath = "/metrics"

// RouteOf returns the value of the label for the path. Clients choose paths and methods, so all
// unknown ones share a label.
func RouteOf(path string) string {
	_, known := rightOf[path]
	switch {
	case known, path == MetricsPath:
		return path
	case IsPage(path), path+"/" == PagePath:
		return PagePath
	}
	return "other"
}

// rightOf has the right that requests for each path need.
var rightOf = map[string]Right{
	"/v1/decide":       ToDecide,
	"/v1/peek":         ToDecide,
	"/v1/settle":       ToDecide,
	"/v1/renew":        ToDecide,
	"/v1/force":        ToWrite,
	"/v1/block":        ToWrite,
	"/v1/reset":        ToWrite,
	CheckPath:          ToDecide,
	"/v1/explain":      toRead,
	"/v1/top-keys":     toRead,
	"/v1/openapi.yaml": ToDecide,
	"/json":            ToDecide,
	"/healthcheck":     ToDecide,
	"/healthz":         ToDecide,
	"/readyz":          ToDecide,
}

// Paths returns the paths that an API answers, in their order.
func Paths() []string { return slices.Sorted(maps.Keys(rightOf)) }

// Needs returns the right that requests for a path need.
func Needs(path string) Right {
	switch {
	case IsPage(path) && strings.HasSuffix(path, "/act"):
		return ToWrite
	case path == MetricsPath, IsPage(path):
		return toRead
	}
	return rightOf[path]
}
