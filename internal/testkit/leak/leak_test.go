package leak

import (
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// TestLeft: goroutines of several kinds are reported until they end.
func TestLeft(t *testing.T) {
	end := make(chan struct{})
	for name, leave := range map[string]func(){
		"chan receive": func() { <-end },
		"select": func() {
			ticker := time.NewTicker(time.Hour)
			defer ticker.Stop()
			select {
			case <-ticker.C:
			case <-end:
			}
		},
		"sleep": func() {
			for {
				select {
				case <-end:
					return
				default:
					time.Sleep(time.Millisecond)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if left := Left(time.Second); len(left) != 0 {
				t.Fatalf("got %d goroutines before the test left any, want none", len(left))
			}
			go leave()
			left := Left(10 * time.Millisecond)
			if len(left) != 1 || !strings.Contains(left[0], "leak.TestLeft") {
				t.Errorf("got %q, want one goroutine", left)
			}
			for of, want := range map[int]int{0: 1, 2: 2} {
				if code := check(of, 0); code != want {
					t.Errorf("got code %d for tests that ended with %d, want %d", code, of, want)
				}
			}
			end <- struct{}{}
			if left := Left(patience); len(left) != 0 {
				t.Errorf("got %q after all have ended, want none", left)
			}
		})
	}
}
