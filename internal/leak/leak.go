// Package leak tells of goroutines that tests leave behind.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// patience is how long goroutines have to end after the tests.
const patience = 20 * time.Second

// Main runs tests, of a *testing.M, and exits: with 1 where they pass and leave a goroutine behind.
func Main(tests interface{ Run() int }) {
	os.Exit(Check(tests.Run()))
}

// Check returns the exit code of tests that have ended with code: it turns 0 into 1, and says why,
// if goroutines stay. It is for those who have more to do than [Main].
func Check(code int) int { return check(code, patience) }

func check(code int, within time.Duration) int {
	if code != 0 {
		return code // a test that fails may well leave something
	}
	if stacks := Left(within); len(stacks) > 0 {
		fmt.Printf("leak: %d goroutines are left after the tests:\n\n%s\n",
			len(stacks), strings.Join(stacks, "\n\n"))
		return 1
	}
	return 0
}

// Left returns the stacks of the goroutines, besides the caller's and those of the runtime and of
// package testing, that are still there when the time is over, or none as soon as there is none.
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

// others returns the stacks of all goroutines that somebody may have left. The first is the
// caller's.
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

// expected tells of a goroutine that the test binary has by itself.
func expected(stack string) bool {
	for _, f := range []string{
		"\ntesting.(*T).Run(",            // waits for a test
		"\ntesting.runFuzzing(",          // whose workers are processes
		"\nos/signal.signal_recv(",       // since somebody asked for signals
		"\nruntime/pprof.profileWriter(", // -cpuprofile
		"\nruntime.ReadTrace(",           // -trace

		// A client of a cluster that is closed while it asks for the slots waits for the answers,
		// the libraries' own timeouts long, once for each node.
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
