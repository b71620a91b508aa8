package servers

import (
	"testing"

	"github.com/truewindow/ratelimit/integration/faultproxy"
)

// Proxy returns a proxy to the server at target, closed at the end of the test.
func Proxy(t testing.TB, target string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
