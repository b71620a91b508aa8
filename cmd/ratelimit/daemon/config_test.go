package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestReload: limits of a file change between two requests, keep what was recorded, and outlive a
// file with an error.
func TestReload(t *testing.T) {
	// The first Notify starts a goroutine of the process, which a bubble may not have.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	synctest.Test(t, func(t *testing.T) {
		const limits = "limits:\n  - {name: units, key: [tenant], max: %d/1h}\n"
		file := apitest.ConfigFile(t, fmt.Sprintf(limits, 2))
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		var log apitest.Log
		c := parseServe(t, []string{"serve", "--config", file})
		l, err := c.followLimits(t.Context(), c.newDecider(store, nil), nil, nil,
			slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		h := httpapi.New(httpapi.Options{
			Decider: l.decider, Config: l.config.Load, Log: apitest.Discard})
		take := func(want int) {
			t.Helper()
			status, _, body := apitest.Call(t, h, apitest.Request(http.MethodPost, "/v1/decide",
				`{"descriptor":{"tenant":"acme"}}`))
			if status != want {
				t.Errorf("%d %s, want %d", status, body, want)
			}
		}
		take(http.StatusOK)
		take(http.StatusOK)
		take(http.StatusTooManyRequests)
		apitest.WriteFile(t, file, fmt.Sprintf(limits, 4))
		time.Sleep(time.Second)
		take(http.StatusOK)
		apitest.WriteFile(t, file, "limits:\n  - {name: units, max: many}\n")
		time.Sleep(time.Minute)
		take(http.StatusOK)
		take(http.StatusTooManyRequests)
		apitest.WriteFile(t, file,
			"limits: [{name: others, key: [tenant], max: 9/1h}]\nstore: memory\n")
		time.Sleep(time.Second)
		take(http.StatusOK)
		if got := log.String(); strings.Count(got, "ERROR") != 1 ||
			strings.Count(got, "read only at the start") != 1 {
			t.Errorf("log:\n%s", got)
		}
	})
}

// TestReloadKeepsWaitingCalls: a call that waits under a limit by its name is admitted as soon as
// units are free, also if the file has been loaded again meanwhile.
func TestReloadKeepsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		c := parseServe(t, []string{"serve", "--config", apitest.ConfigFile(t,
			"limits: [{name: calls, key: [tenant], algorithm: in-flight, max: 1}]\n")})
		l, err := c.newLimits(t.Context(), c.newDecider(store, nil), nil, apitest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		h := httpapi.New(httpapi.Options{
			Decider: l.decider, Config: l.config.Load, Log: apitest.Discard})
		const body = `{"hold_ms":0,"wait_ms":5000,"claims":[{"limit":"calls","key":"a"}]}`
		var held struct{ ID string }
		if err := json.Unmarshal(apitest.AnswerOf(t, h, "/v1/decide", body), &held); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		waited := time.Duration(-1)
		go func() {
			apitest.AnswerOf(t, h, "/v1/decide", body)
			waited = time.Since(began)
		}()
		synctest.Wait()
		if _, err := l.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		apitest.AnswerOf(t, h, "/v1/settle", `{"id":"`+held.ID+`"}`)
		time.Sleep(5 * time.Second)
		if synctest.Wait(); waited != 0 {
			t.Errorf("the call was admitted %v after the units were free", waited)
		}
	})
}

func TestStoreOfConfig(t *testing.T) {
	dir := t.TempDir()
	apitest.WriteFile(t, filepath.Join(dir, "password"), "p@ss/:w?rd\n")
	in := rules.Position{File: filepath.Join(dir, "limits.yaml"), Line: 2}
	for _, tt := range []struct{ store, password, want string }{
		{"", "", "memory"},
		{"redis://host", "", "redis://host"},
		{"redis://host/1", "password", "redis://:p%40ss%2F%3Aw%3Frd@host/1"},
		{"redis+cluster://me@a,b", filepath.Join(dir, "password"),
			"redis+cluster://me:p%40ss%2F%3Aw%3Frd@a,b"},
		{"redis://me:secret@host", "password", ""},
		{"memory", "password", ""},
		{"redis://host", "none", ""},
	} {
		f := &rules.File{Store: rules.Text{Value: tt.store},
			PasswordFile: rules.Text{Value: tt.password, At: in}}
		got, err := storeOf(f)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s with %q: %q, %v, want %q", tt.store, tt.password, got, err, tt.want)
		}
		if tt.password == "none" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v of a file that is not there", err)
		}
	}
}
