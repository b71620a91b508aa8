package integration

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// eachClocked runs f, as a subtest, on the images whose wall clock is stepped at every commit, and on all in a full run.
func eachClocked(t *testing.T, f func(t *testing.T, image string)) {
	t.Helper()
	for _, image := range images {
		if image == "redis:7" && !full && len(images) > 1 {
			continue
		}
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			t.Parallel() // it mostly waits for windows
			f(t, image)
		})
	}
}

// startClocked starts a server of the test's own whose wall clock [server.setClock] can step.
func startClocked(t testing.TB, image string, args ...string) *server {
	t.Helper()
	s := startServerWith(t, image, testcontainers.WithCmdArgs(args...), clockStepped)
	if err := s.clockstep(t.Context(), 0); err != nil {
		skip(t, fmt.Sprintf("the clock of %s cannot be stepped, as that of images can which \"make images\" builds: %v", image, err))
	}
	return s
}

// clockStepped makes a container's clock one that can be stepped, where its image has what it takes.
var clockStepped = testcontainers.WithEnv(map[string]string{"CLOCKSTEP_FILE": "/run/clock"})

// setClock sets the server's wall clock so far from the true time.
func (s *server) setClock(t testing.TB, offset time.Duration) {
	t.Helper()
	if err := s.clockstep(t.Context(), offset); err != nil {
		t.Fatal(err)
	}
	c := newCalm(t, s.addr)
	before := time.Now()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	const apart = 10 * time.Millisecond // clocks of one machine, read in different ways
	if was := now.Add(-offset); was.Before(before.Add(-apart)) || was.After(time.Now().Add(apart)) {
		t.Fatalf("the clock of %s is %v from the true time, not %v", s.image, now.Sub(before), offset)
	}
	c.Close()
}

func (s *server) clockstep(ctx context.Context, offset time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	code, out, err := s.container.Exec(ctx, []string{"clockstep", fmt.Sprint(int64(offset / time.Second))}, exec.Multiplexed())
	if err != nil || code == 0 {
		return err
	}
	text, _ := io.ReadAll(out)
	return fmt.Errorf("clockstep: exit code %d: %s", code, strings.TrimSpace(string(text)))
}

// A timed is a store of one client on a server whose clock steps.
type timed struct {
	name   string
	store  ratelimit.Store
	cached bool // refusals
}

// timedStores returns a store through every client, and one more that caches refusals through those that can. All share their states.
func timedStores(t testing.TB, d dialing) []timed {
	t.Helper()
	opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
	var all []timed
	for _, lib := range libraries {
		all = append(all, timed{lib.name, lib.client(t, d).newStore(t, &opts), false})
		if lib.caching != nil {
			all = append(all, timed{lib.name + ", cached", lib.caching(d).store(t, &opts), true})
		}
	}
	return all
}
