package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// storeOf are the flags for a server that may be slow on a busy machine.
func storeOf(s *servers.Server) []string {
	return []string{"--store=redis://" + s.Addr + "?timeout=10s", "--on-failure=closed"}
}

// clientsOfKill bounds the requests that get no answer, with those on connections that are dead.
const clientsOfKill = 8

// TestKill kills a service under load and starts another one. Over both, exactly the units of each
// key are admitted, or fewer by those of requests that got no answer; what was held is settled
// once.
func TestKill(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		kill(t, bin, storeOf(servers.Start(t, image)))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "limits.db")
		kill(t, bin, []string{"--store=sqlite:" + file + "?timeout=10s", "--on-failure=closed"})
	})
}

func kill(t *testing.T, bin string, store []string) {
	t.Helper()
	path, _ := byRename(t, limitsFile(larger, 0)+
		"  - {name: budget, key: [budget], max: 100/1h, holds: 1m}\n")
	flags := append(store, "--config="+path)
	first := daemon.Start(t, bin, flags...)
	client, count := newClient(t), newTally()
	stop := clients(clientsOfKill, 2*time.Millisecond, func(_, call int) {
		key := fmt.Sprint(call % 20)
		count.add(key, take(t.Context(), client, first.URL(), "same", key))
	})
	defer stop()
	id := holdBudget(t, first)
	servers.Within(t, func() bool { return count.admitted() >= 5*same }, "there is no load")
	first.Kill(t)
	stop()
	one := count.admitted()

	second := daemon.Start(t, bin, flags...)
	settle := fmt.Sprintf(`{"id":%q,"used":30}`, id)
	for _, want := range []int{http.StatusNoContent, http.StatusConflict} {
		if status, body, _ := second.PostJSON(t, "/v1/settle", settle); status != want {
			t.Errorf("settle: %d %s, want %d", status, body, want)
		}
	}
	if left := remaining(t, second, "budget"); left != 70 {
		t.Errorf("%d units of the budget are left, want 70", left)
	}
	sum := count.useUp(t, second.URL(), "same", same)
	if one == 0 || one == sum.admitted || sum.unknown > 3*clientsOfKill {
		t.Errorf("%d of %d units were admitted before the end, %d are unknown: "+
			"this test proves nothing", one, sum.admitted, sum.unknown)
	}
	servers.Measured("%s: %d of %d units were admitted before the end, of %d keys; "+
		"%d requests got no answer", t.Name(), one, sum.admitted, len(count.keys), sum.unknown)
}

// holdBudget holds 60 units of the limit "budget", and returns the id.
func holdBudget(t *testing.T, d *daemon.Daemon) string {
	t.Helper()
	status, body, _ := d.PostJSON(t, "/v1/decide",
		`{"descriptor":{"budget":"a"},"n":60,"hold_ms":0}`)
	var held struct{ ID string }
	if err := json.Unmarshal([]byte(body), &held); err != nil || held.ID == "" {
		t.Fatalf("%d %s", status, body)
	}
	return held.ID
}

// remaining returns how many units of the key a are free under a limit that is named after its
// entry.
func remaining(t *testing.T, d *daemon.Daemon, limit string) (n int64) {
	t.Helper()
	status, body, _ := d.PostJSON(t, "/v1/peek",
		fmt.Sprintf(`{"claims":[{"limit":%q,"key":"a"}]}`, limit))
	var state struct{ Remaining int64 }
	if err := json.Unmarshal([]byte(body), &state); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return state.Remaining
}
