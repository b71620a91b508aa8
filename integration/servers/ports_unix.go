//go:build unix

package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

var (
	reserving sync.Mutex
	reserved  = make(map[int]*os.File) // held until the process ends
)

// reserve reports whether no other process has a port, and keeps it for this one.
func reserve(port int) bool {
	reserving.Lock()
	defer reserving.Unlock()
	if reserved[port] != nil {
		return false
	}
	dir := filepath.Join(os.TempDir(), "ratelimit-ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return true
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return true
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return false
	}
	reserved[port] = f
	return true
}
