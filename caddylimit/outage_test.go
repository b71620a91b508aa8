package caddylimit

import (
	"net"
	"strings"
	"testing"
)

// TestOutage: Caddy starts while its store is unavailable, on_failure decides, and the log says so
// once, without the password.
func TestOutage(t *testing.T) {
	for onFailure, want := range map[string]int{"": 503, "closed": 503, "open": 200} {
		t.Run("on_failure "+onFailure, func(t *testing.T) {
			t.Setenv("CADDYLIMIT_PASSWORD", secret)
			s := newServer(t)
			option := ""
			if onFailure != "" {
				option = "on_failure " + onFailure
			}
			s.load("limits {\nstore redis://:{env.CADDYLIMIT_PASSWORD}@" + closedAddr(t) +
				"?timeout=20ms\nlimit a 1/1h\n" + option + "\n}")
			s.want([]int{want, want, want})
			s.load("respond hello") // closes the store
			log := s.logged()
			if n := strings.Count(log, "the store is unavailable"); n != 1 {
				t.Errorf("the outage is logged %d times, want once:\n%s", n, log)
			}
			if strings.Contains(log, secret) {
				t.Errorf("the log has the password:\n%s", log)
			}
		})
	}
}

const secret = "secret-word"

// closedAddr returns an address at which nobody listens.
func closedAddr(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	return listener.Addr().String()
}
