package service

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const drain = time.Second

// TestDrain stops a service that has requests. It says that it is not ready before it refuses
// anything; a load balancer that heeds this loses no request, and nor does a client that got a
// connection in time. Then the process has ended with code 0, and connections are refused.
func TestDrain(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.CountTest(t, "memory")
	path, _ := byRename(t, limitsFile(larger, 0)+
		"  - {name: calls, key: [call], max: 1, algorithm: in-flight, holds: 1m}\n")
	d := daemon.Start(t, bin, "--config="+path, fmt.Sprintf("--drain=%v", drain))
	s := &stopping{T: t, service: d, url: d.URL()}
	stopBalanced := s.balanced()
	stopStubborn := s.stubborn()
	defer stopBalanced()
	defer stopStubborn()
	servers.Within(t, func() bool { return s.answered.Load() > 100 }, "there is no load")

	s.mu.Lock()
	s.signaled = time.Now()
	s.mu.Unlock()
	d.Signal(t, syscall.SIGTERM)
	late := s.late()
	if code := d.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	stopBalanced()
	stopStubborn()
	late.Wait()
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://")); !errors.Is(err,
		syscall.ECONNREFUSED) {
		t.Errorf("a connection after the end: %v, want it refused", err)
	}
	s.judge()
}

// stopping is a service that stops under load.
type stopping struct {
	*testing.T
	service *daemon.Daemon
	url     string

	answered, draining atomic.Int64 // requests, and those of them that began after the signal
	unready            atomic.Bool

	mu       sync.Mutex
	signaled time.Time
	notReady time.Time // when /readyz first answered 503
	kept     int       // connections that the service kept open after that
	refused  time.Time // when a request that got no answer began, the first of them
	err      error     // what it got
}

// balanced runs clients behind a load balancer, which asks /readyz all the time and sends nothing
// more when that fails. Every request is answered.
func (s *stopping) balanced() (stop func()) {
	client := newClient(s.T)
	stopAsking := clients(1, 10*time.Millisecond, func(int, int) {
		if s.unready.Load() {
			return
		}
		res, err := client.Get(s.url + "/readyz")
		if err != nil {
			s.Errorf("/readyz: %v before it was 503", err)
			s.unready.Store(true)
			return
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode == http.StatusServiceUnavailable {
			s.mu.Lock()
			s.notReady = time.Now()
			s.mu.Unlock()
			s.unready.Store(true)
			client.CloseIdleConnections()
		}
	})
	stopTaking := clients(4, 2*time.Millisecond, func(client2, call int) {
		if s.unready.Load() {
			return
		}
		a := take(s.Context(), client, s.url, "same", fmt.Sprint(client2, call%100))
		if a.err != nil {
			s.Errorf("a request of the load balancer: %v", a.err)
		}
		s.answered.Add(1)
	})
	return func() {
		stopAsking()
		stopTaking()
	}
}

// stubborn runs clients that go on until nothing answers, half of them with a new connection for
// each request.
func (s *stopping) stubborn() (stop func()) {
	keeping := newClient(s.T)
	fresh := newClient(s.T)
	fresh.Transport.(*http.Transport).DisableKeepAlives = true
	return clients(4, 5*time.Millisecond, func(client, call int) {
		with := keeping
		if client%2 == 1 {
			with = fresh
		}
		a := take(s.Context(), with, s.url, "changing", fmt.Sprint(client, call%100))
		if a.err != nil {
			with.CloseIdleConnections() // the server waits for those that were never used
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case a.err == nil && !s.signaled.IsZero() && a.began.After(s.signaled):
			s.draining.Add(1)
			if !a.closed && !s.notReady.IsZero() && a.began.After(s.notReady) {
				s.kept++
			}
		case a.err != nil && (s.refused.IsZero() || a.began.Before(s.refused)):
			s.refused, s.err = a.began, a.err
		}
	})
}

// late sends requests that are still unanswered when the drain ends: one that waits for a call in
// flight, and one whose body comes late.
func (s *stopping) late() *sync.WaitGroup {
	var wg sync.WaitGroup
	hold := `{"descriptor":{"call":"a"},"hold_ms":0,"wait_ms":2000}`
	if status, body, _ := s.service.PostJSON(s.T, "/v1/decide", hold); status != http.StatusOK {
		s.Errorf("%d %s", status, body)
	}
	wg.Go(func() {
		status, body, _ := s.service.PostJSON(s.T, "/v1/decide", hold)
		if status != http.StatusTooManyRequests || !strings.Contains(body, `"allowed":false`) {
			s.Errorf("a request that waits while the service stops: %d %s", status, body)
		}
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.Error(err)
		return &wg
	}
	body := `{"descriptor":{"same":"slow"}}`
	fmt.Fprintf(conn, "POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
		len(body))
	wg.Go(func() {
		defer conn.Close()
		time.Sleep(drain + drain/2) // what the body is late by is the subject
		fmt.Fprint(conn, body)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			s.Errorf("a request whose body is late: %v", err)
			return
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			s.Errorf("a request whose body is late: %d", res.StatusCode)
		}
	})
	return &wg
}

func (s *stopping) judge() {
	servers.Measured("%s: not ready %v after the signal; %d requests were answered after it; the "+
		"first that was not began after %v: %v", s.Name(),
		s.notReady.Sub(s.signaled).Round(time.Millisecond), s.draining.Load(),
		s.refused.Sub(s.signaled).Round(time.Millisecond), s.err)
	switch {
	case s.notReady.IsZero() || s.refused.IsZero() || s.draining.Load() == 0:
		s.Error("the service was ready, or all or no requests were answered after the signal")
	case s.kept > 0:
		s.Errorf("%d connections were kept open while the service drained", s.kept)
	case s.refused.Before(s.notReady):
		s.Errorf("a request was refused while the service was ready: %v", s.err)
	case s.refused.Sub(s.signaled) < drain-50*time.Millisecond:
		s.Errorf("a request that began %v after the signal got no answer: %v",
			s.refused.Sub(s.signaled), s.err)
	}
}
