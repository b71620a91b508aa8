package integration

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestLeastRights withdraws each of the rights that the stores' packages say that a user needs, one by one. With all of them everything works; without
// any of them something does not.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			t.Parallel()
			server := startServer(t, image)
			admin := newCalm(t, server.addr)
			eachLibrary(t, func(t *testing.T, lib library) {
				rights := strings.Fields(decisionRights)
				if err := useRights(t, lib, admin, server, rights); err != nil {
					t.Errorf("with all rights: %v", err)
				}
				for i, right := range rights {
					rest := slices.Delete(slices.Clone(rights), i, i+1)
					if err := useRights(t, lib, admin, server, rest); !errors.Is(err, ratelimit.ErrUnavailable) {
						t.Errorf("without %s: %v, want ErrUnavailable", right, err)
					}
				}
			})
		})
	}
}

// TestRightsAreDocumented holds that the packages name the rights that the tests try.
func TestRightsAreDocumented(t *testing.T) {
	for _, pkg := range []string{"redis", "rueidis", "valkey"} {
		doc, err := os.ReadFile("../backend/" + pkg + "/doc.go")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"~rl:* " + decisionRights + "\n", "+cluster|slots", "+info"}
		if pkg != "redis" {
			want = append(want, cacheRights, "+cluster|shards")
		}
		for _, rights := range want {
			if !strings.Contains(string(doc), rights) {
				t.Errorf("%s does not name %q", pkg, rights)
			}
		}
	}
}

// useRights does all that a store can do, as a user with these rights.
func useRights(t *testing.T, lib library, admin *redis.Client, server *server, rights []string) error {
	t.Helper()
	if err := errors.Join(admin.Do(t.Context(), aclOf(strings.Join(rights, " "))...).Err(), dropScripts(t.Context(), admin)); err != nil {
		t.Fatal(err)
	}
	c, err := lib.open(dialing{addrs: []string{server.addr}, username: "cacher", password: "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	prefix := "rl:" + freshKey(t) + ":"
	var errs []error
	for _, now := range []func() int64{nil, func() int64 { return time.Now().UnixMicro() }} {
		s := c.newStore(t, &redisstore.Options{Prefix: prefix, Timeout: patient, Now: now})
		errs = append(errs, useAll(t, s))
	}
	_, err = c.newStore(t, &redisstore.Options{Prefix: prefix, Timeout: patient}).probe(t.Context())
	return errors.Join(append(errs, err)...)
}

// useAll makes every kind of demand, on states of each form.
func useAll(t *testing.T, s ratelimit.Store) error {
	var errs []error
	do := func(d ratelimit.Demand) ratelimit.Result {
		res, err := s.Take(t.Context(), d)
		errs = append(errs, err)
		return res
	}
	d := ratelimit.Demand{Key: freshKey(t), Algorithm: algorithm.SlidingLog(ratelimit.Limit{Max: 100, Window: time.Second}), N: 1}
	var at int64
	for range 20 { // small, then a line
		at = do(d).At
	}
	time.Sleep(300 * time.Millisecond) // the time to live, which was a little longer than needed, is not long enough any more
	do(d)
	for _, op := range []ratelimit.Op{ratelimit.Look, ratelimit.Force, ratelimit.GiveBack, ratelimit.Reset} {
		d.Op, d.At = op, at
		do(d)
	}
	d.Op = ratelimit.Take
	return errors.Join(append(errs, s.TakeAll(t.Context(), []ratelimit.Demand{d, take(d.Key)}, make([]ratelimit.Result, 2)))...)
}
