package envoy

import (
	"strings"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// BenchmarkShouldRateLimit makes calls of two descriptors on the store in memory, as a function and
// over gRPC.
func BenchmarkShouldRateLimit(b *testing.B) {
	limit := func(name string) *rules.Limit {
		return &rules.Limit{
			Name: name, Key: []string{name}, Algorithm: "bucket",
			Rate: rules.Rate{Units: driver.MaxUnits, Window: day},
		}
	}
	req := request("tenant=acme", "address=10.0.0.1")
	b.Run("function", func(b *testing.B) {
		store, err := memorystore.New(nil)
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		s := newService(b, store, Config{}, new(strings.Builder), limit("tenant"), limit("address"))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.ShouldRateLimit(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("grpc", func(b *testing.B) {
		f := start(b, Config{}, limit("tenant"), limit("address"))
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := f.client.ShouldRateLimit(b.Context(), req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
