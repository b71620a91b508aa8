package scripts

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestLeastRights: a user with exactly the rights that the stores' packages document can do
// everything. Without any one of them something fails, checked on the newest server through
// go-redis and rueidis and, in a full run, on all through all.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			rights := strings.Fields(clients.DecisionRights)
			if err := useRights(t, lib, admin, server, rights); err != nil {
				t.Errorf("with all rights: got %v, want no error", err)
			}
			if !depth.Full && (image != servers.Newest() || lib.Name == "valkey-go") {
				return
			}
			for i, right := range rights {
				rest := slices.Delete(slices.Clone(rights), i, i+1)
				err := useRights(t, lib, admin, server, rest)
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("without %s: got %v, want ErrUnavailable", right, err)
				}
				writes := strings.HasPrefix(right, "+set") || strings.HasPrefix(right, "+pex")
				if errors.Is(err, driver.ErrOutcomeUnknown) && !writes {
					t.Errorf("without %s: got %v, want no ErrOutcomeUnknown", right, err)
				}
			}
		})
	})
}

// scriptSources match the files whose Lua calls commands for decisions.
var scriptSources = []string{
	servers.Module + "/algorithm/*.lua",
	servers.Module + "/backend/lua/*.lua",
	servers.Module + "/backend/internal/server/tryagain.go",
}

var (
	scriptCall    = regexp.MustCompile(`\bp?call\(([^,)]*)`)
	scriptCommand = regexp.MustCompile(`'([A-Z]+)'`)
)

// TestRightsAreThoseOfScripts: the commands that the scripts call, and those that run the scripts,
// are the rights that the documentation names and the probe tries.
func TestRightsAreThoseOfScripts(t *testing.T) {
	rights := map[string]bool{"+evalsha": true, "+eval": true}
	for _, pattern := range scriptSources {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range scriptCall.FindAllStringSubmatch(string(source), -1) {
				if call[1] == "..." {
					continue // of a function that calls any command
				}
				commands := scriptCommand.FindAllStringSubmatch(call[1], -1)
				if len(commands) == 0 {
					t.Errorf("%s: this test cannot read the command of %q", file, call[0])
				}
				for _, command := range commands {
					rights["+"+strings.ToLower(command[1])] = true
				}
			}
		}
	}
	documented := make(map[string]bool)
	for right := range strings.FieldsSeq(clients.DecisionRights) {
		documented[right] = true
	}
	if !maps.Equal(rights, documented) {
		t.Errorf("the scripts need %v, but %v are documented", slices.Sorted(maps.Keys(rights)),
			slices.Sorted(maps.Keys(documented)))
	}
	probe, err := os.ReadFile(servers.Module + "/backend/internal/server/probe.lua")
	if err != nil {
		t.Fatal(err)
	}
	for right := range rights {
		command := strings.ToUpper(strings.TrimPrefix(right, "+"))
		if !strings.HasPrefix(command, "EVAL") &&
			!strings.Contains(string(probe), "{'"+command+"'") {
			t.Errorf("the probe does not try %s, which the scripts use", command)
		}
	}
}

// TestRightsAreDocumented: the packages and docs/operations.md name the rights that the tests use.
func TestRightsAreDocumented(t *testing.T) {
	wants := map[string][]string{servers.Module +
		"/docs/operations.md": {"~rl:* " + clients.DecisionRights + "\n", "+cluster|slots",
		"+cluster|shards", "+info", clients.CacheRights}}
	for _, pkg := range []string{"redis", "rueidis", "valkey"} {
		want := []string{"~rl:* " + clients.DecisionRights + "\n", "+cluster|slots", "+info"}
		if pkg != "redis" {
			want = append(want, clients.CacheRights, "+cluster|shards")
		}
		wants[servers.Module+"/backend/"+pkg+"/doc.go"] = want
	}
	for file, want := range wants {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(doc), " +del\n//\t", " +del ") // two lines of a comment
		for _, rights := range want {
			if !strings.Contains(text, rights) {
				t.Errorf("%s does not name %q", file, rights)
			}
		}
	}
}

// useRights does everything that a store can do, as a user with these rights.
func useRights(
	t *testing.T, lib clients.Library, admin *redis.Client, server *servers.Server, rights []string,
) error {
	t.Helper()
	if err := errors.Join(admin.Do(t.Context(), clients.ACL(strings.Join(rights, " "))...).Err(),
		servers.DropScripts(t.Context(), admin)); err != nil {
		t.Fatal(err)
	}
	c, err := lib.Open(clients.Dialing{Addrs: []string{server.Addr}, Username: "cacher",
		Password: "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	prefix := "rl:" + servers.FreshKey(t) + ":"
	var errs []error
	for _, now := range []func() int64{nil, func() int64 { return time.Now().UnixMicro() }} {
		s := c.NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: clients.Patient, Now: now})
		errs = append(errs, useAll(t, s))
		if now == nil {
			errs = append(errs, useForms(t, s, admin, prefix))
		}
	}
	_, err = c.NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: clients.Patient}).
		Probe(t.Context())
	return errors.Join(append(errs, err)...)
}

// useAll makes every kind of demand on states of each form.
func useAll(t *testing.T, s driver.Store) error {
	var errs []error
	do := func(d driver.Demand) {
		_, err := s.Take(t.Context(), d)
		errs = append(errs, err)
	}
	d := driver.Demand{Key: servers.FreshKey(t),
		Algorithm: algorithm.SlidingLog(driver.Limit{Max: 100, Window: time.Second}), N: 1}
	for range 20 { // first a small log, then a line
		do(d)
	}
	// the time to live had a small reserve, which is now used up
	time.Sleep(300 * time.Millisecond)
	do(d)
	for _, op := range []driver.Op{driver.OpPeek, driver.OpForce, driver.OpReset} {
		d.Op, d.At = op, 1 // a force adds to the oldest record
		do(d)
	}
	d.Op = driver.OpTake
	for _, a := range []driver.Algorithm{heldBudget, algorithm.InFlight("calls", 9)} {
		held := driver.Demand{Key: d.Key, Algorithm: a, Op: driver.OpHold, N: 1, ID: 7}
		do(held)
		held.ID = 8
		do(held)
		held.Op = driver.OpSettle
		do(held)
		held.Op = driver.OpReset
		do(held)
	}
	return errors.Join(append(errs,
		s.TakeAll(t.Context(), []driver.Demand{d, clients.Take(d.Key)},
			make([]driver.Result, 2)))...)
}

// useForms makes every kind of demand, alone, in a group and batched with equal ones, on states of
// each form and on corrupt ones.
func useForms(t *testing.T, s driver.Store, admin *redis.Client, prefix string) error {
	var errs []error
	note := func(err error, corrupt bool) {
		if corrupt && errors.Is(err, driver.ErrCorruptState) {
			err = nil
		}
		errs = append(errs, err)
	}
	states := realStates(time.Now().UnixMicro())
	states["corrupt"] = realState{log: states["small"].log, bytes: []byte("none")}
	for name, state := range states {
		corrupt := name == "corrupt"
		set := func() driver.Demand {
			key := servers.FreshKey(t)
			stored := prefix + "{=" + key + "}:" + state.log.Limit().Name + ":" + state.log.Name()
			if err := admin.Set(t.Context(), stored, state.bytes, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			return driver.Demand{Key: key, Algorithm: state.log, N: 1, At: state.at}
		}
		for _, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce,
			driver.OpReset} {
			d := set()
			d.Op = op
			_, err := s.Take(t.Context(), d)
			note(err, corrupt)
			for _, n := range []int64{1, 1000} { // admitted, refused
				group := []driver.Demand{set(), clients.Take(servers.FreshKey(t))}
				group[0].Op = op
				group[1].N = n
				if n > 1 {
					_, err := s.Take(t.Context(), clients.Take(group[1].Key))
					note(err, false)
				}
				note(s.TakeAll(t.Context(), group, make([]driver.Result, 2)), corrupt)
			}
		}
		same := set()
		var wg sync.WaitGroup
		results := make([]error, 20)
		for i := range results {
			wg.Go(func() { _, results[i] = s.Take(t.Context(), same) })
		}
		wg.Wait()
		for _, err := range results {
			note(err, corrupt)
		}
	}
	return errors.Join(errs...)
}
