package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/watch"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	// The first Notify starts a goroutine of the process, which no bubble may have.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	leak.Main(m)
}

// soon is longer than two looks, and shorter than the time after which contents are compared.
const soon = time.Second

var errBroken = errors.New("broken")

// A config is a directory with the files of a configuration.
type config struct {
	testing.TB
	dir     string
	files   []string // to follow, below dir
	watcher *watch.Watcher
	log     bytes.Buffer

	mu     sync.Mutex
	loads  int
	inside string // what is in force: the contents of all files
}

func newConfig(t testing.TB, files ...string) *config {
	return &config{TB: t, dir: t.TempDir(), files: files}
}

func (c *config) path(name string) string { return filepath.Join(c.dir, name) }

func (c *config) write(name, content string) {
	c.Helper()
	if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(c.path(name), []byte(content), 0o644); err != nil {
		c.Fatal(err)
	}
}

// load reads all files. One with the word broken fails, and so does a path that is not there.
func (c *config) load(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads++
	var inside strings.Builder
	for _, f := range c.files {
		paths := []string{c.path(f)}
		if strings.Contains(f, "*") {
			paths, _ = filepath.Glob(c.path(f))
		}
		for _, p := range paths {
			content, err := os.ReadFile(p)
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(content), "broken") {
				return nil, errBroken
			}
			inside.Write(content)
		}
	}
	c.inside = inside.String()
	return nil, nil
}

func (c *config) paths() (paths []string) {
	for _, f := range c.files {
		paths = append(paths, c.path(f))
	}
	return paths
}

func (c *config) start() {
	c.Helper()
	w, err := watch.New(c.Context(), slog.New(slog.NewTextHandler(&c.log, nil)), c.paths(), c.load)
	if err != nil {
		c.Fatal(err)
	}
	c.watcher = w
}

// expect waits, and expects so many loads since the start and what is in force.
func (c *config) expect(wait time.Duration, loads int, inside string) {
	c.Helper()
	time.Sleep(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loads != loads || c.inside != inside {
		c.Errorf("%d loads and %q in force, want %d and %q", c.loads, c.inside, loads, inside)
	}
}

// inBubble runs a test with a configuration in synthetic time.
func inBubble(t *testing.T, files []string, test func(c *config)) {
	synctest.Test(t, func(t *testing.T) {
		c := newConfig(t, files...)
		test(c)
		c.watcher.Close()
	})
}

func TestChange(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "one")
		c.start()
		c.expect(time.Minute, 1, "one")
		first := c.watcher.Status()
		c.write("rules.yaml", "three")
		c.expect(soon, 2, "three")
		c.expect(time.Minute, 2, "three")
		status := c.watcher.Status()
		if status.Hash == first.Hash || len(status.Hash) != 64 || status.Err != nil ||
			!status.Loaded.After(first.Loaded) || time.Since(status.Loaded) < time.Minute {
			c.Errorf("status %+v after %+v", status, first)
		}
		c.write("rules.yaml", "one")
		c.expect(soon, 3, "one")
		if got := c.watcher.Status().Hash; got != first.Hash {
			c.Errorf("hash %s of the first contents, want %s", got, first.Hash)
		}
	})
}

// setTime makes all files of a test as old as each other.
func (c *config) setTime(name string) {
	c.Helper()
	at := time.Unix(1e9, 0)
	if err := os.Chtimes(c.path(name), at, at); err != nil {
		c.Fatal(err)
	}
}

// TestRename: editors and tools write another file and rename it, perhaps with an old time.
func TestRename(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "one")
		c.setTime("rules.yaml")
		c.start()
		c.write("new", "two")
		c.setTime("new")
		if err := os.Rename(c.path("new"), c.path("rules.yaml")); err != nil {
			c.Fatal(err)
		}
		c.expect(soon, 2, "two")
	})
}

// TestKubernetes: a ConfigMap is a directory of links through ..data, which is replaced.
func TestKubernetes(t *testing.T) {
	inBubble(t, []string{"rules.yaml", "overrides*.yaml"}, func(c *config) {
		version := func(name, rules, overrides string) {
			c.write(name+"/rules.yaml", rules)
			c.write(name+"/overrides1.yaml", overrides)
			c.setTime(name + "/rules.yaml")
			c.setTime(name + "/overrides1.yaml")
		}
		link := func(to, name string) {
			if err := os.Symlink(to, c.path(name)); err != nil {
				c.Fatal(err)
			}
		}
		version("..v1", "one", "a")
		link("..v1", "..data")
		link("..data/rules.yaml", "rules.yaml")
		link("..data/overrides1.yaml", "overrides1.yaml")
		c.start()
		for i, rules := range []string{"two", "six", "ten"} {
			name := fmt.Sprintf("..v%d", i+2)
			version(name, rules, "b")
			link(name, "..data_tmp")
			if err := os.Rename(c.path("..data_tmp"), c.path("..data")); err != nil {
				c.Fatal(err)
			}
			if err := os.RemoveAll(c.path(fmt.Sprintf("..v%d", i+1))); err != nil {
				c.Fatal(err)
			}
			c.expect(soon, i+2, rules+"b")
		}
	})
}

// TestHalfWritten: a file that grows is loaded when it does not grow any more.
func TestHalfWritten(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "old")
		c.start()
		time.Sleep(100 * time.Millisecond)
		content := ""
		for range 20 {
			content += "new "
			c.write("rules.yaml", content)
			c.expect(200*time.Millisecond, 1, "old")
		}
		c.expect(soon, 2, content)
	})
}

func TestDeleted(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "one")
		c.start()
		before := c.watcher.Status()
		if err := os.Remove(c.path("rules.yaml")); err != nil {
			c.Fatal(err)
		}
		c.expect(time.Minute, 2, "one")
		got := c.watcher.Status()
		if !errors.Is(got.Err, os.ErrNotExist) || got.Failed != 1 || got.Hash != before.Hash ||
			got.Loaded != before.Loaded {
			c.Errorf("status %+v after %+v", got, before)
		}
		if n := strings.Count(c.log.String(), "ERROR"); n != 1 {
			c.Errorf("%d errors are logged, want 1:\n%s", n, &c.log)
		}
		c.write("rules.yaml", "two")
		c.expect(soon, 3, "two")
		if got := c.watcher.Status(); got.Err != nil || got.Failed != 1 {
			c.Errorf("status %+v, want no error", got)
		}
	})
}

func TestPattern(t *testing.T) {
	inBubble(t, []string{"rules.yaml", "overrides/*.yaml"}, func(c *config) {
		c.write("rules.yaml", "rules")
		c.start()
		c.write("overrides/b.yaml", " b")
		c.expect(soon, 2, "rules b")
		c.write("overrides/a.yaml", " a")
		c.write("overrides/other", " x")
		c.expect(soon, 3, "rules a b")
		if err := os.Remove(c.path("overrides/b.yaml")); err != nil {
			c.Fatal(err)
		}
		c.expect(soon, 4, "rules a")
		c.expect(time.Minute, 4, "rules a")
	})
}

// TestNameLikeAPattern: a file may be named as a pattern that does not match it.
func TestNameLikeAPattern(t *testing.T) {
	inBubble(t, []string{"rules[1].yaml"}, func(c *config) {
		c.write("rules[1].yaml", "one")
		c.start()
		c.write("rules[1].yaml", "three")
		c.expect(soon, 2, "three")
	})
}

func TestOneInFiveIsBroken(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "version 0")
		c.start()
		inside := "version 0"
		for i := 1; i <= 100; i++ {
			version := fmt.Sprintf("version %d", i)
			if i%5 == 0 {
				c.write("rules.yaml", version+" broken")
			} else {
				inside = version
				c.write("rules.yaml", version)
			}
			c.expect(soon, i+1, inside)
			if broken := i%5 == 0; errors.Is(c.watcher.Status().Err, errBroken) != broken {
				c.Errorf("status %+v of version %d", c.watcher.Status(), i)
			}
		}
		if got := c.watcher.Status(); got.Failed != 20 {
			c.Errorf("%d loads have failed, want 20", got.Failed)
		}
		if n := strings.Count(c.log.String(), "ERROR"); n != 20 {
			c.Errorf("%d errors are logged, want 20", n)
		}
	})
}

// TestCoarseTimes: a change that stat does not show is found when the contents are compared.
func TestCoarseTimes(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "one")
		c.setTime("rules.yaml")
		c.start()
		c.write("rules.yaml", "two")
		c.setTime("rules.yaml")
		c.expect(2*time.Second, 1, "one")
		c.expect(2*time.Second, 2, "two")
		c.expect(time.Minute, 2, "two")
	})
}

// TestFollow: a load says which files it has read. A change while it reads them is not lost.
func TestFollow(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "rules")
		c.write("included.yaml", " old")
		both := []string{"rules.yaml", "included.yaml"}
		load := func(ctx context.Context) ([]string, error) {
			c.files = both
			_, err := c.load(ctx)
			if c.loads == 1 {
				c.write("included.yaml", " new")
			}
			return c.paths(), err
		}
		w, err := watch.New(c.Context(), slog.New(slog.DiscardHandler), c.paths(), load)
		if err != nil {
			c.Fatal(err)
		}
		c.watcher = w
		c.expect(time.Minute, 2, "rules new")
		c.write("included.yaml", " newer")
		c.expect(soon, 3, "rules newer")
	})
}

// TestFollowBroken: a new file that is broken is followed, and fails once.
func TestFollowBroken(t *testing.T) {
	inBubble(t, []string{"rules.yaml"}, func(c *config) {
		c.write("rules.yaml", "rules")
		load := func(ctx context.Context) ([]string, error) {
			_, err := c.load(ctx)
			return c.paths(), err
		}
		w, err := watch.New(c.Context(), slog.New(slog.DiscardHandler), c.paths(), load)
		if err != nil {
			c.Fatal(err)
		}
		c.watcher = w
		c.mu.Lock()
		c.files = append(c.files, "included.yaml")
		c.mu.Unlock()
		c.write("included.yaml", "broken")
		c.write("rules.yaml", "rules 2")
		time.Sleep(time.Minute)
		if got := w.Status(); got.Failed != 1 || !errors.Is(got.Err, errBroken) {
			c.Errorf("status %+v, want one failure", got)
		}
		c.write("included.yaml", " good")
		c.expect(soon, 4, "rules 2 good")
	})
}

func TestFirstLoad(t *testing.T) {
	c := newConfig(t, "rules.yaml")
	log := slog.New(slog.DiscardHandler)
	_, err := watch.New(t.Context(), log, c.paths(), c.load)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v of a file that is not there", err)
	}
	_, err = watch.New(t.Context(), log, []string{"[a"}, c.load)
	if !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("error %v of a bad pattern, want ErrInvalid", err)
	}
}

// TestForced: without a first load the watcher waits for the files.
func TestForced(t *testing.T) {
	c := newConfig(t, "rules.yaml")
	loads := make(chan struct{}, 1)
	w, err := watch.NewForced(t.Context(), slog.New(slog.DiscardHandler), c.paths(),
		func(ctx context.Context) ([]string, error) {
			follow, err := c.load(ctx)
			if err == nil {
				loads <- struct{}{}
			}
			return follow, err
		})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if s := w.Status(); s.Err == nil || s.Failed != 1 || !s.Loaded.IsZero() {
		t.Errorf("%+v", s)
	}
	c.write("rules.yaml", "good")
	<-loads
	if _, err := watch.NewForced(t.Context(), slog.New(slog.DiscardHandler), []string{"[a"},
		c.load); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("error %v of a bad pattern, want ErrInvalid", err)
	}
}

// TestHangup waits for loads and not for time, since signals are not in a bubble.
func TestHangup(t *testing.T) {
	loads := make(chan struct{})
	w, err := watch.New(t.Context(), slog.New(slog.DiscardHandler), nil,
		func(ctx context.Context) ([]string, error) {
			go func() {
				select {
				case loads <- struct{}{}:
				case <-ctx.Done():
				}
			}()
			return nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	<-loads
	for range 3 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-loads
	}
	w.Close()
}

// TestClose ends a load that runs.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConfig(t, "rules.yaml")
		c.write("rules.yaml", "one")
		loads := 0
		load := func(ctx context.Context) ([]string, error) {
			if loads++; loads == 1 {
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w, err := watch.New(t.Context(), slog.New(slog.DiscardHandler), c.paths(), load)
		if err != nil {
			t.Fatal(err)
		}
		c.write("rules.yaml", "three")
		time.Sleep(soon)
		w.Close()
		w.Close()
		if got := w.Status(); loads != 2 || got.Failed != 0 {
			t.Errorf("%d loads and %+v, want no failure", loads, got)
		}
	})
}

// TestPipe: a file that is no regular one is not read for the hash.
func TestPipe(t *testing.T) {
	c := newConfig(t)
	if err := syscall.Mkfifo(c.path("pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	w, err := watch.New(t.Context(), slog.New(slog.DiscardHandler),
		slices.Concat(c.paths(), []string{c.path("pipe")}), c.load)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// TestSlowLoad: a change after a load that took long is loaded as soon as any other.
func TestSlowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 5 * time.Second
		c := newConfig(t, "rules.yaml")
		c.write("rules.yaml", "one")
		w, err := watch.New(t.Context(), slog.New(slog.DiscardHandler), c.paths(),
			func(ctx context.Context) ([]string, error) {
				time.Sleep(slow)
				return c.load(ctx)
			})
		if err != nil {
			t.Fatal(err)
		}
		for i, content := range []string{"three", "seven", "eleven"} {
			c.write("rules.yaml", content)
			c.expect(slow+soon, i+2, content)
		}
		w.Close()
	})
}
