package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	_ "github.com/truewindow/ratelimit/backend/sqlite"
)

const (
	partsEnv   = "GATEWAY_TEST_PARTS" // the file of limits of a process that is to be killed
	partsLimit = 5000
)

func partsOf(store ratelimit.Store, charge bool) (*inParts, error) {
	budget := algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("tokens", partsLimit)))
	if charge {
		budget = budget.ChargeTimeouts()
	}
	tokens, err := ratelimit.New(store, budget)
	return &inParts{tokens: tokens, tenant: "acme"}, err
}

// streamUntilKilled uses tokens, and writes how many it has used.
func streamUntilKilled(path string) {
	ctx := context.Background()
	store, err := backend.Open(ctx, "sqlite:"+path)
	if err == nil {
		var p *inParts
		p, err = partsOf(store, os.Getenv("GATEWAY_TEST_CHARGE") != "")
		for used := 7; err == nil; used += 7 {
			if err = p.use(ctx, 7); err == nil {
				fmt.Println(used)
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestPartsKilled kills a process in the midst of an answer. What it had sent is charged, but for
// the last part at most; with ChargeTimeouts, all of it.
func TestPartsKilled(t *testing.T) {
	for _, charge := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "limits.db")
		used := killAfter(t, path, charge, 1200)
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		later := func() int64 { return time.Now().Add(10 * time.Minute).UnixMicro() }
		store, err := sqlstore.New(db, sqlstore.SQLite, &sqlstore.Options{Now: later})
		if err != nil {
			t.Fatal(err)
		}
		p, err := partsOf(store, charge)
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.tokens.Peek(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		charged := partsLimit - res.Remaining
		least := (used - 1) / step * step
		if charge {
			least = used
		}
		if charged < least || charged > used+2*step {
			t.Errorf("charge %t: %d tokens are charged, want %d or a little more: %d were used",
				charge, charged, least, used)
		}
	}
}

// killAfter has a process use at least as many tokens, kills it, and returns how many it has used.
func killAfter(t *testing.T, path string, charge bool, least int64) (used int64) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), partsEnv+"="+path)
	if charge {
		cmd.Env = append(cmd.Env, "GATEWAY_TEST_CHARGE=1")
	}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); { // to the end of what it has written
		if _, err := fmt.Sscan(lines.Text(), &used); err != nil {
			t.Fatal(err)
		}
		if used >= least {
			_ = cmd.Process.Kill() // SIGKILL
		}
	}
	if err := cmd.Wait(); err == nil || used < least {
		t.Fatalf("the process has ended by itself after %d tokens", used)
	}
	return used
}

// TestParts: an answer charges what it uses, and ends when the tokens are used up.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		p, err := partsOf(store, false)
		if err != nil {
			t.Fatal(err)
		}
		wantLeft := func(want int64) {
			t.Helper()
			if res, err := p.tokens.Peek(t.Context(), "acme"); err != nil ||
				res.Remaining != want {
				t.Errorf("%+v, %v, want %d left", res, err, want)
			}
		}
		for _, n := range []int64{1, step - 1, 1, 2*step + 10} {
			if err := p.use(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		wantLeft(partsLimit - 4*step)
		if err := p.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLeft(partsLimit - 3*step - 11)
		another, _ := partsOf(store, false)
		if err := another.use(t.Context(), partsLimit); !errors.Is(err, errUsedUp) {
			t.Errorf("more than is left: %v", err)
		}
	})
}
