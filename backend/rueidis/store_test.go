package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit/algorithm"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

func take(key string) driver.Demand {
	return driver.Demand{Key: key,
		Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 10)), N: 1}
}

// unconnected returns a client that dials with dial when it is first used.
func unconnected(t *testing.T, dial func() (net.Conn, error)) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{"127.0.0.1:1"},
		ForceSingleClient: true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return dial()
		},
	})
	if client == nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func noNetwork() (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("no network")}
}

func TestNewRefuses(t *testing.T) {
	client := unconnected(t, noNetwork)
	for _, tt := range []struct {
		what   string
		client rueidis.Client
		opts   *serverstore.Options
		ok     bool
	}{
		{"no client", nil, nil, false},
		{"brace in the prefix", client, &serverstore.Options{Prefix: "a{b"}, false},
		{"negative Timeout", client, &serverstore.Options{Timeout: -1}, false},
		{"no options", client, nil, true},
		{"zero options", client, &serverstore.Options{}, true},
	} {
		s, err := rueidisstore.New(tt.client, tt.opts)
		if ok := err == nil; ok != tt.ok || ok != (s != nil) ||
			!ok && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}

// TestNoServer: a demand for which no connection could be made fails with ErrUnavailable and not
// with ErrOutcomeUnknown.
func TestNoServer(t *testing.T) {
	s, err := rueidisstore.New(unconnected(t, noNetwork), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Take(t.Context(), take("secret"))
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%v has the key", err)
	}
	if _, err := s.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Probe: %v, want ErrUnavailable", err)
	}
}

// TestDeadline: a call returns in time while the client makes a connection.
func TestDeadline(t *testing.T) {
	hang := make(chan struct{})
	var dialled atomic.Int64
	client := unconnected(t, func() (net.Conn, error) {
		if dialled.Add(1) > 1 { // the first is that of NewClient
			<-hang
		}
		return noNetwork()
	})
	defer close(hang)
	s, err := rueidisstore.New(client, &serverstore.Options{Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), take("k")); !errors.Is(err, driver.ErrUnavailable) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want ErrUnavailable and the context's error", err)
	}

	patient, err := rueidisstore.New(client, &serverstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := patient.Take(ctx, take("k")); !errors.Is(err, driver.ErrUnavailable) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrUnavailable and the context's error", err)
	}
}

// TestSeveralSlots: TakeAll on a cluster fails before any I/O if the keys are in several slots.
func TestSeveralSlots(t *testing.T) {
	s, err := rueidisstore.New(cluster{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.TakeAll(t.Context(), []driver.Demand{take("a"), take("b")},
		make([]driver.Result, 2))
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

// cluster is a client that only reports that it is for a cluster.
type cluster struct{ rueidis.Client }

func (cluster) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }
