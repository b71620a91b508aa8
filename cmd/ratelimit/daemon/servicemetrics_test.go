package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestDocumentedMetrics compares the metrics of the page with those that there are.
func TestDocumentedMetrics(t *testing.T) {
	var want []string
	for _, m := range serviceMetrics {
		name := strings.ReplaceAll(m.name, ".", "_")
		if m.unit == "s" {
			name += "_seconds"
		}
		if m.counter {
			name += "_total"
		}
		want = append(want, name)
	}
	slices.Sort(want)
	if named := apitest.DocumentedMetrics(t); !slices.Equal(named, want) {
		t.Errorf("the page names\n%q, want\n%q", named, want)
	}
}
