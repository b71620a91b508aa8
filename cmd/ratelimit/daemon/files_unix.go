//go:build unix

package daemon

import (
	"math"
	"syscall"
)

// maxFiles returns how many files the process may open.
func maxFiles() int64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt32
	}
	//nolint:unconvert // FreeBSD's is signed
	return int64(min(uint64(files.Cur), math.MaxInt32))
}
