package access

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const markedPassword = "marked-password"

// wantNoSecret checks that no secret appears in err or in an error that it wraps, whichever verb
// prints it.
func wantNoSecret(t *testing.T, what string, err error, secrets ...string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err),
		fmt.Sprintf("%#v", err)} {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the error contains %q: %s", what, secret, text)
			}
		}
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		wantNoSecret(t, what, err.Unwrap(), secrets...)
	case interface{ Unwrap() []error }:
		for _, wrapped := range err.Unwrap() {
			wantNoSecret(t, what, wrapped, secrets...)
		}
	}
}

// TestSecretsStaySecret: no key and no password appears in an error or a log line, even where a
// server or client repeats what it was sent.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		strict := servers.Start(t, image, "--requirepass", markedPassword)
		mute := servers.Start(t, image, "--rename-command", "EVALSHA", "")
		strange := servers.Start(t, image, "--rename-command", "AUTH", "",
			"--rename-command", "HELLO", "")
		admin := redis.NewClient(&redis.Options{Addr: strict.Addr, Password: markedPassword})
		defer admin.Close()
		for user, rights := range map[string]string{
			"reader": "~* +@all -evalsha", "stranger": "~other:* +@all",
			"idler":  "~* +@all -set -setrange",
			"worker": "~* +@all",
		} {
			args := []any{"ACL", "SETUSER", user, "on", ">" + markedPassword}
			for rule := range strings.FieldsSeq(rights) {
				args = append(args, rule)
			}
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for what, d := range map[string]clients.Dialing{
			"no password": {Addrs: []string{strict.Addr}},
			"wrong password": {Addrs: []string{strict.Addr},
				Password: markedPassword + "-not"},
			"wrong user": {Addrs: []string{strict.Addr}, Username: "nobody",
				Password: markedPassword},
			"no EVALSHA": {Addrs: []string{strict.Addr}, Username: "reader",
				Password: markedPassword},
			"other keys": {Addrs: []string{strict.Addr}, Username: "stranger",
				Password: markedPassword},
			"no writing": {Addrs: []string{strict.Addr}, Username: "idler",
				Password: markedPassword},
			"unknown EVALSHA": {Addrs: []string{mute.Addr}},
			"unknown AUTH":    {Addrs: []string{strange.Addr}, Password: markedPassword},
			"unknown AUTH and user": {Addrs: []string{strange.Addr}, Username: "default",
				Password: markedPassword},
			"nobody listens": {Addrs: []string{"127.0.0.1:1"}, Password: markedPassword},
			"no cluster":     {Addrs: []string{mute.Addr}, Cluster: true, Password: markedPassword},
		} {
			clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
				wantDiscreet(t, what, lib, d)
			})
		}
		out := daemon.RunRefused(t, bin, "--store=redis://:"+markedPassword+"-not@"+strict.Addr) +
			daemon.RunRefused(t, bin, "--store=redis://:"+markedPassword+"@"+strange.Addr)
		for _, scheme := range []string{"rueidis", "valkey", "valkey+cluster"} {
			d := daemon.Start(t, bin, "--store="+scheme+"://:"+markedPassword+"@"+strange.Addr,
				"--on-failure=closed", "--log-level=debug")
			if status, body, _ := d.Post(t, "/v1/decide",
				"marked-key"); status != http.StatusServiceUnavailable {
				t.Errorf("%s: got status %d, want 503: %s", scheme, status, body)
			}
			out += d.Logged()
		}
		out += daemon.RunRefused(t, bin, "--store=redis://idler:"+markedPassword+"@"+strict.Addr)
		failing := daemon.Start(t, bin, "--store=redis://worker:"+markedPassword+"@"+strict.Addr+
			"?timeout=5s", "--on-failure=closed", "--log-level=debug")
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "-set", "-setrange").
			Err(); err != nil {
			t.Fatal(err)
		}
		status, body, _ := failing.Post(t, "/v1/decide", "marked-key")
		if status != http.StatusServiceUnavailable {
			t.Errorf("got status %d, want 503: %s", status, body)
		}
		if out += body + failing.Logged(); strings.Contains(out, "marked-") {
			t.Errorf("the daemon revealed a key or password: %s", out)
		}
	})
}

// wantDiscreet makes operations of a store fail and checks that no error has a secret.
func wantDiscreet(t *testing.T, what string, lib clients.Library, d clients.Dialing) {
	t.Helper()
	if lib.Caching != nil {
		_, err := lib.OpenCache(d,
			clients.CacheOptions{Options: serverstore.Options{Timeout: time.Second}})
		wantNoSecret(t, what+": Open", err, "marked-")
	}
	c, err := lib.Open(d)
	if err != nil {
		return // the client's own error
	}
	s := c.NewStore(t, &serverstore.Options{Timeout: 2 * time.Second})
	try := func(ctx context.Context, when string) (failed int) {
		check := func(err error) {
			t.Helper()
			wantNoSecret(t, what+", "+when, err, "marked-")
			if err != nil {
				failed++
			}
		}
		for _, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce,
			driver.OpReset} {
			d := clients.Take("marked-key")
			d.Op = op
			_, err := s.Take(ctx, d)
			check(err)
		}
		check(s.TakeAll(ctx, []driver.Demand{clients.Take("marked-key"),
			clients.Take("marked-key-2")}, make([]ratelimit.Result, 2)))
		_, err := s.Probe(ctx)
		check(err)
		return failed
	}
	if try(t.Context(), "asked") == 0 {
		t.Errorf("%s: no call failed, want all to fail", what)
	}
	c.Close()
	try(t.Context(), "closed")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	try(ended, "ended")
}
