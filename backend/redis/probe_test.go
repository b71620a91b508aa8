package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/driver"
)

// TestProbeOfNoRedis probes addresses without a Redis: a closed port, a web server, and a server
// that does not answer.
func TestProbeOfNoRedis(t *testing.T) {
	for what, greeting := range map[string]string{
		"closed": "",
		"web":    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
		"silent": "",
	} {
		t.Run(what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if what == "closed" {
				l.Close()
			}
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					io.WriteString(conn, greeting)
				}
			}()
			client := redis.NewClient(&redis.Options{Addr: l.Addr().String()})
			s := newStore(t, client, nil)
			onceInTime(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := s.Probe(ctx)
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%v, want ErrUnavailable", err)
				}
				if d := time.Since(start); d > 1200*time.Millisecond {
					return fmt.Errorf("returned %v after %v, want an answer within 1.2s", err, d)
				}
				return nil
			})
		})
	}
}
