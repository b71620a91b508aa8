package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

const markedPassword = "marked-password"

// wantNoSecret holds that none of secrets is in err, however it is printed, or in an error that it wraps.
func wantNoSecret(t *testing.T, what string, err error, secrets ...string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err), fmt.Sprintf("%#v", err)} {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q in %s", what, secret, text)
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

// runRefused runs the daemon, which must refuse to start, and returns what it says.
func runRefused(t *testing.T, bin string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), bin, append([]string{"serve", "--addr=127.0.0.1:0", "--on-failure=closed"}, args...)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, %s; want exit code 1", err, out)
	}
	return string(out)
}

// TestSecretsStaySecret asks servers that refuse in all the ways in which they, or the clients, say much, and finds neither keys nor passwords in
// what they say.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	bin := buildDaemon(t)
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			strict := startServer(t, image, "--requirepass", markedPassword)
			mute := startServer(t, image, "--rename-command", "EVALSHA", "")
			strange := startServer(t, image, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
			admin := redis.NewClient(&redis.Options{Addr: strict.addr, Password: markedPassword})
			defer admin.Close()
			for user, rights := range map[string]string{
				"reader": "~* +@all -evalsha", "stranger": "~other:* +@all", "idler": "~* +@all -set -setrange",
			} {
				args := []any{"ACL", "SETUSER", user, "on", ">" + markedPassword}
				for rule := range strings.FieldsSeq(rights) {
					args = append(args, rule)
				}
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for what, d := range map[string]dialing{
				"no password":           {addrs: []string{strict.addr}},
				"wrong password":        {addrs: []string{strict.addr}, password: markedPassword + "-not"},
				"wrong user":            {addrs: []string{strict.addr}, username: "nobody", password: markedPassword},
				"no EVALSHA":            {addrs: []string{strict.addr}, username: "reader", password: markedPassword},
				"other keys":            {addrs: []string{strict.addr}, username: "stranger", password: markedPassword},
				"no writing":            {addrs: []string{strict.addr}, username: "idler", password: markedPassword},
				"unknown EVALSHA":       {addrs: []string{mute.addr}},
				"unknown AUTH":          {addrs: []string{strange.addr}, password: markedPassword},
				"unknown AUTH and user": {addrs: []string{strange.addr}, username: "default", password: markedPassword},
				"nobody listens":        {addrs: []string{"127.0.0.1:1"}, password: markedPassword},
				"no cluster":            {addrs: []string{mute.addr}, cluster: true, password: markedPassword},
			} {
				eachLibrary(t, func(t *testing.T, lib library) { wantDiscreet(t, what, lib, d) })
			}
			out := runRefused(t, bin, "--store=redis://:"+markedPassword+"-not@"+strict.addr) +
				runRefused(t, bin, "--store=redis://:"+markedPassword+"@"+strange.addr)
			failing := startDaemon(t, bin, "--store=redis://idler:"+markedPassword+"@"+strict.addr, "--on-failure=closed", "--timeout=5s", "--log-level=debug")
			status, body, _ := failing.post(t, "/v1/take", "marked-key")
			if status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", status, body)
			}
			if out += body + failing.logged(); strings.Contains(out, "marked-") {
				t.Errorf("the daemon says: %s", out)
			}
		})
	}
}

// wantDiscreet makes everything that a store does fail, and looks into the errors.
func wantDiscreet(t *testing.T, what string, lib library, d dialing) {
	t.Helper()
	if lib.caching != nil {
		_, err := lib.openCache(d, cacheOptions{Options: redisstore.Options{Timeout: time.Second}})
		wantNoSecret(t, what+": Open", err, "marked-")
	}
	c, err := lib.open(d)
	if err != nil {
		return // it is the client's own
	}
	s := c.newStore(t, &redisstore.Options{Timeout: 2 * time.Second})
	try := func(ctx context.Context, when string) (failed int) {
		check := func(err error) {
			t.Helper()
			wantNoSecret(t, what+", "+when, err, "marked-")
			if err != nil {
				failed++
			}
		}
		for _, op := range []ratelimit.Op{ratelimit.Take, ratelimit.Look, ratelimit.Force, ratelimit.GiveBack, ratelimit.Reset} {
			d := take("marked-key")
			d.Op = op
			_, err := s.Take(ctx, d)
			check(err)
		}
		check(s.TakeAll(ctx, []ratelimit.Demand{take("marked-key"), take("marked-key-2")}, make([]ratelimit.Result, 2)))
		_, err := s.probe(ctx)
		check(err)
		return failed
	}
	if try(t.Context(), "asked") == 0 {
		t.Errorf("%s: nothing failed", what)
	}
	c.close()
	try(t.Context(), "closed")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	try(ended, "ended")
}
