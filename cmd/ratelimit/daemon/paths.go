package daemon

import (
	"maps"
	"slices"
	"strings"
)

// pagePath is where the page of limits is, with all that belongs to it.
const pagePath = "/dashboard/"

func isPage(path string) bool { return strings.HasPrefix(path, pagePath) }

const metricsPath = "/metrics"

// routeOf returns the value of the label for the path. Clients choose paths and methods, so all
// unknown ones share a label.
func routeOf(path string) string {
	_, known := rightOf[path]
	switch {
	case known, path == metricsPath:
		return path
	case isPage(path), path+"/" == pagePath:
		return pagePath
	}
	return "other"
}

// rightOf has the right that requests for each path need.
var rightOf = map[string]right{
	"/v1/decide":       toDecide,
	"/v1/peek":         toDecide,
	"/v1/settle":       toDecide,
	"/v1/renew":        toDecide,
	"/v1/force":        toWrite,
	"/v1/block":        toWrite,
	"/v1/reset":        toWrite,
	checkPath:          toDecide,
	"/v1/explain":      toRead,
	"/v1/top-keys":     toRead,
	"/v1/openapi.yaml": toDecide,
	"/json":            toDecide,
	"/healthcheck":     toDecide,
	"/healthz":         toDecide,
	"/readyz":          toDecide,
}

// Paths returns the paths that an API answers, in their order.
func Paths() []string { return slices.Sorted(maps.Keys(rightOf)) }

// needs returns the right that requests for a path need.
func needs(path string) right {
	switch {
	case isPage(path) && strings.HasSuffix(path, "/act"):
		return toWrite
	case path == metricsPath, isPage(path):
		return toRead
	}
	return rightOf[path]
}
