// Package leak finds goroutines that tests leave behind.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// patience is how long goroutines may take to end after the tests.
const patience = 20 * time.Second

// Main runs tests, a *testing.M, and exits with their code, or with 1 if they pass but leave a
// goroutine behind.
func Main(tests interface{ Run() int }) {
	os.Exit(Check(tests.Run()))
}

// Check returns the exit code for tests that ended with code: it turns 0 into 1, and prints the
// stacks, if they have left goroutines behind. It is for a TestMain that does more than [Main].
func Check(code int) int { return check(code, patience) }

func check(code int, within time.Duration) int {
	if code != 0 {
		return code // a failed test may leave goroutines behind
	}
	if stacks := Left(within); len(stacks) > 0 {
		fmt.Printf("leak: the tests left %d goroutines behind:\n\n%s\n",
			len(stacks), strings.Join(stacks, "\n\n"))
		return 1
	}
	return 0
}

// Left waits until no goroutines are left except the caller's and those of the runtime and of
// package testing. After the time within it returns the stacks of those that are.
func Left(within time.Duration) []string {
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		stacks := others()
		if len(stacks) == 0 || time.Now().After(deadline) {
			return stacks
		}
		time.Sleep(pause)
	}
}

// others returns the stacks of all goroutines except the first, which is the caller's, and the
// expected ones.
func others() (stacks []string) {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	for _, stack := range strings.Split(strings.TrimSpace(string(buf)), "\n\n")[1:] {
		if !expected(stack) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// expected reports whether a stack is that of a goroutine that every test binary may have.
func expected(stack string) bool {
	for _, f := range []string{
		"\ntesting.(*T).Run(",            // waiting for a test
		"\ntesting.runFuzzing(",          // waiting for its worker processes
		"\nos/signal.signal_recv(",       // after signal.Notify
		"\nruntime/pprof.profileWriter(", // -cpuprofile
		"\nruntime.ReadTrace(",           // -trace

		// If a cluster client is closed while it asks for the slots, it waits for the answer, up to
		// the library's timeout for each node.
		"/rueidis.getClusterSlots(",
		"/rueidis.(*clusterClient)._refresh(",
		"/valkey-go.getClusterSlots(",
		"/valkey-go.(*clusterClient)._refresh(",
	} {
		if strings.Contains(stack, f) {
			return true
		}
	}
	return false
}
