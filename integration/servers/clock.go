package servers

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// EachClocked is EachImage for tests that step the wall clock, which run side by side.
func EachClocked(t *testing.T, f func(t *testing.T, image string)) {
	t.Helper()
	EachImage(t, func(t *testing.T, image string) {
		t.Parallel() // mostly waits for windows to end
		f(t, image)
	})
}

// StartClocked starts a server for this test alone whose wall clock [Server.SetClock] can step, and
// otherwise never goes back.
func StartClocked(t testing.TB, image string, args ...string) *Server {
	t.Helper()
	library, err := clockLibrary()
	if err != nil {
		Skip(t, fmt.Sprintf("clocks cannot be stepped: %v", err))
	}
	s := StartWith(t, image, Launch{
		Args:  args,
		env:   []string{"LD_PRELOAD=./" + clockLibraryFile, "CLOCKSTEP_FILE=" + clockFile},
		Files: map[string][]byte{clockLibraryFile: library, clockFile: clockOffset(0)},
	})
	info, err := Connect(t, s.Addr).Info(t.Context(), "server").Result()
	if err != nil || !strings.Contains(info, "monotonic_clock:POSIX") {
		t.Fatalf("the server does not read the wall clock each time: %v %s", err, info)
	}
	return s
}

const (
	clockLibraryFile = "libclockstep.so"
	clockFile        = "clock"
)

//go:embed testdata/clockstep.c
var clockSource string

// clockLibrary compiles the library that adds the offset in clockFile to a server's wall clock.
var clockLibrary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ratelimit-clock-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, clockLibraryFile)
	cc := exec.Command("cc", "-Wall", "-O2", "-fPIC", "-shared", "-nostdlib", "-o", file, "-x", "c",
		"-")
	cc.Stdin = strings.NewReader(clockSource)
	if out, err := cc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("clockstep.c does not compile: %w %s", err, out)
	}
	return os.ReadFile(file)
})

func clockOffset(offset time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(offset))
}

// StepClock sets the server's wall clock to the true time plus offset, without checking it.
func (s *Server) StepClock(ctx context.Context, offset time.Duration) error {
	return s.write(ctx, clockFile, clockOffset(offset))
}

// SetClock sets the server's wall clock to the true time plus offset.
func (s *Server) SetClock(t testing.TB, offset time.Duration) {
	t.Helper()
	s.fault(t, "setClock", func(ctx context.Context) error {
		return s.StepClock(ctx, offset)
	})
	c := Connect(t, s.Addr)
	before := time.Now()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	const apart = 10 * time.Millisecond // tolerance between clocks of one machine
	if was := now.Add(-offset); was.Before(before.Add(-apart)) || was.After(time.Now().Add(apart)) {
		t.Fatalf("the clock of %s is %v from the true time, want %v",
			s.Image, now.Sub(before), offset)
	}
	c.Close()
}
