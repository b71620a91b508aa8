package service

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRollingDeploy has a service with another Max take the place of one on the same server, while
// clients use both. Never are more units admitted than the larger Max allows, nor more of a limit
// that is the same in both files; afterwards the new Max is exact.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		server := servers.Start(t, image)
		for _, tt := range []struct {
			name     string
			old, new int
		}{{"up", smaller, larger}, {"down", larger, smaller}} {
			t.Run(tt.name, func(t *testing.T) {
				rollOut(t, bin, server, tt.name, tt.old, tt.new)
			})
		}
	})
}

func rollOut(t *testing.T, bin string, server *servers.Server, prefix string, oldMax, newMax int) {
	start := func(max int) *daemon.Daemon {
		path, _ := byRename(t, limitsFile(max, 0)+
			"  - {name: budget, key: [budget], max: 100/1h, holds: 1m}\n")
		return daemon.Start(t, bin, append(storeOf(server), "--config="+path)...)
	}
	before, after := start(oldMax), start(newMax)
	client, kept, changed := newClient(t), newTally(), newTally()
	stop := clients(8, 2*time.Millisecond, func(n, call int) {
		d, entry, count := before, "same", kept
		if n%2 == 1 {
			d = after
		}
		if n/2%2 == 1 {
			entry, count = "changing", changed
		}
		key := fmt.Sprintf("%s %d", prefix, call%20)
		a := take(t.Context(), client, d.URL(), entry, key)
		count.add(key, a)
		if a.err != nil {
			t.Error(a.err)
		}
	})
	defer stop()
	id := holdBudget(t, before)
	servers.Within(t, func() bool {
		return kept.admitted() >= 10*same && changed.admitted() >= 10*smaller
	}, "there is no load")
	stop()
	before.Signal(t, syscall.SIGTERM)
	if code := before.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	mixed := changed.admitted()
	if n := changed.most(); n > larger {
		t.Errorf("%d units of a key were admitted, want at most %d", n, larger)
	}
	kept.useUp(t, after.URL(), "same", same)
	changed.useUp(t, after.URL(), "changing", int64(newMax))
	fresh := newTally()
	for i := range 10 {
		fresh.keys[fmt.Sprint(prefix, " fresh ", i)] = new(units)
	}
	fresh.useUp(t, after.URL(), "changing", int64(newMax))
	status, body, _ := after.PostJSON(t, "/v1/settle", fmt.Sprintf(`{"id":%q,"used":30}`, id))
	if status != http.StatusNoContent {
		t.Errorf("settle: %d %s", status, body)
	}
	servers.Measured("%s: from %d to %d; %d units of %d keys were admitted by both", t.Name(),
		oldMax, newMax, mixed, len(changed.keys))
}
