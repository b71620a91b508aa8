package upstream_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/upstream"
)

// atHand is a RoundTripper that returns its response at once.
type atHand struct{ response *http.Response }

func (t atHand) RoundTrip(*http.Request) (*http.Response, error) { return t.response, nil }

// BenchmarkTransport measures what a limit adds to an outgoing request.
func BenchmarkTransport(b *testing.B) {
	store, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	base := atHand{&http.Response{StatusCode: http.StatusOK, Header: http.Header{},
		Body: http.NoBody}}
	limited, err := upstream.New(store, &upstream.Options{Base: base, Margin: noMargin},
		ratelimit.Limit{Name: "many", Max: 100_000, Window: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name      string
		transport http.RoundTripper
	}{{"bare", base}, {"limited", limited}} {
		b.Run(bm.name, func(b *testing.B) {
			request, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				response, err := bm.transport.RoundTrip(request)
				if err != nil {
					b.Fatal(err)
				}
				response.Body.Close()
			}
		})
	}
}
