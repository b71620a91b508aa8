package servers

import (
	"context"
	"testing"
	"time"
)

// Within polls until done returns true. It fails the test with what after FaultTimeout.
func Within(t testing.TB, done func() bool, what string) {
	t.Helper()
	await(t, func() (bool, error) { return done(), nil }, what+": ")
}

// Poll calls done until it returns true or an error, or ctx ends.
func Poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Await polls until done returns true. It fails the test on an error or after FaultTimeout.
func Await(t testing.TB, done func() (bool, error)) {
	t.Helper()
	await(t, done, "")
}

func await(t testing.TB, done func() (bool, error), what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), FaultTimeout)
	defer cancel()
	if err := Poll(ctx, done); err != nil {
		t.Fatalf("%s%v", what, err)
	}
}

// FaultTimeout is how long tests wait for a server to fail or to recover.
const FaultTimeout = 30 * time.Second
