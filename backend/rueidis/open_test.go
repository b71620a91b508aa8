package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// TestOpenRefuses: options that rule caching out or are out of range are an error before any
// connection is made.
func TestOpenRefuses(t *testing.T) {
	for name, set := range map[string]func(*rueidis.ClientOption, *serverstore.OpenOptions){
		"AlwaysRESP2": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.AlwaysRESP2 = true
		},
		"DisableCache": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.DisableCache = true
		},
		"DisableAutoPipelining": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.DisableAutoPipelining = true
		},
		"ConnLifetime": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.ConnLifetime = time.Hour
		},
		"ClientTrackingOptions": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.ClientTrackingOptions = []string{"OPTIN"}
		},
		"SendToReplicas": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.SendToReplicas = func(rueidis.Completed) bool { return true }
		},
		"ReplicaOnly": func(c *rueidis.ClientOption, _ *serverstore.OpenOptions) {
			c.ReplicaOnly = true
		},
		"CacheEntries": func(_ *rueidis.ClientOption, o *serverstore.OpenOptions) {
			o.CacheEntries = -1
		},
		"CacheBytes": func(_ *rueidis.ClientOption, o *serverstore.OpenOptions) {
			o.CacheBytes = -1
		},
		"CacheAge": func(_ *rueidis.ClientOption, o *serverstore.OpenOptions) { o.CacheAge = -1 },
		"Timeout":  func(_ *rueidis.ClientOption, o *serverstore.OpenOptions) { o.Timeout = -1 },
		"Prefix":   func(_ *rueidis.ClientOption, o *serverstore.OpenOptions) { o.Prefix = "a{b" },
	} {
		t.Run(name, func(t *testing.T) {
			option := rueidis.ClientOption{
				InitAddress: []string{"127.0.0.1:1"},
				DialCtxFn: func(context.Context, string, *net.Dialer,
					*tls.Config) (net.Conn, error) {
					t.Error("a connection was made")
					return noNetwork()
				},
			}
			var opts serverstore.OpenOptions
			set(&option, &opts)
			s, err := rueidisstore.Open(option, &opts)
			if s != nil || !errors.Is(err, driver.ErrInvalid) ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("%v, want ErrInvalid for %s", err, name)
			}
		})
	}
}

// TestOpenWithoutServer: Open fails with ErrUnavailable if no server can be reached, whatever the
// kind of client.
func TestOpenWithoutServer(t *testing.T) {
	for name, set := range map[string]func(*rueidis.ClientOption){
		"single":   func(c *rueidis.ClientOption) { c.ForceSingleClient = true },
		"any":      func(*rueidis.ClientOption) {},
		"Sentinel": func(c *rueidis.ClientOption) { c.Sentinel.MasterSet = "m" },
	} {
		t.Run(name, func(t *testing.T) {
			option := rueidis.ClientOption{
				InitAddress: []string{"127.0.0.1:1"},
				DialCtxFn: func(context.Context, string, *net.Dialer,
					*tls.Config) (net.Conn, error) {
					return noNetwork()
				},
			}
			set(&option)
			s, err := rueidisstore.Open(option, nil)
			if s != nil || !errors.Is(err, driver.ErrUnavailable) ||
				errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		})
	}
}

// TestOpenGivesUpSoon: Open sets short timeouts on the client where they are zero, and leaves
// others.
func TestOpenGivesUpSoon(t *testing.T) {
	type timeouts struct{ keepAlive, dial time.Duration }
	for name, tt := range map[string]struct{ set, want timeouts }{
		"defaults": {timeouts{}, timeouts{200 * time.Millisecond, 500 * time.Millisecond}},
		"given":    {timeouts{time.Minute, time.Hour}, timeouts{time.Minute, time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			var got timeouts
			option := rueidis.ClientOption{
				InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true,
				Dialer: net.Dialer{KeepAlive: tt.set.keepAlive, Timeout: tt.set.dial},
				DialCtxFn: func(_ context.Context, _ string, d *net.Dialer,
					_ *tls.Config) (net.Conn, error) {
					got = timeouts{d.KeepAlive, d.Timeout}
					return noNetwork()
				},
			}
			if s, err := rueidisstore.Open(option, nil); err == nil {
				s.Close()
				t.Fatal("no error without a server")
			}
			if got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestNewCachesNothing: a store on the caller's client reports no cache, and leaves the client
// open.
func TestNewCachesNothing(t *testing.T) {
	client := unconnected(t, noNetwork)
	s, err := rueidisstore.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().Cache; got != (serverstore.CacheStats{}) {
		t.Errorf("%+v", got)
	}
	s.Close()
	if err := client.Do(t.Context(), client.B().Ping().Build()).
		Error(); errors.Is(err, rueidis.ErrClosing) {
		t.Error("the caller's client is closed")
	}
}
