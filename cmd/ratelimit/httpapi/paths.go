package httpapi

import (
	"maps"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
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
	case isCheck(path):
		return CheckPath
	case IsPage(path), path+"/" == PagePath:
		return PagePath
	}
	return "other"
}

// isCheck reports whether proxies may ask at a path, each with a profile of its own.
func isCheck(path string) bool {
	return path == CheckPath || strings.HasPrefix(path, CheckPath+"/")
}

// rightOf has the right that requests for each path need, or 0.
var rightOf = map[string]access.Rights{
	"/v1/decide":       access.ToDecide,
	"/v1/peek":         access.ToDecide,
	"/v1/settle":       access.ToSettle,
	"/v1/renew":        access.ToSettle,
	"/v1/force":        access.ToWrite,
	"/v1/block":        access.ToWrite,
	"/v1/reset":        access.ToWrite,
	CheckPath:          access.ToDecide,
	"/v1/explain":      access.ToRead,
	"/v1/top-keys":     access.ToRead,
	"/v1/openapi.yaml": 0,
	"/json":            access.ToDecide,
	"/healthcheck":     0,
	"/healthz":         0,
	"/readyz":          0,
}

// Paths returns the paths that an API answers, in their order.
func Paths() []string { return slices.Sorted(maps.Keys(rightOf)) }

// Needs returns the right that requests for a path need, or 0.
func Needs(path string) access.Rights {
	switch {
	case IsPage(path) && strings.HasSuffix(path, "/act"):
		return access.ToWrite
	case path == MetricsPath, IsPage(path):
		return access.ToRead
	case isCheck(path):
		return rightOf[CheckPath]
	}
	return rightOf[path]
}
