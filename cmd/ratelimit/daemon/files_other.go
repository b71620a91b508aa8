//go:build !unix

package daemon

import "math"

// maxFiles returns how many files the process may open.
func maxFiles() int64 { return math.MaxInt32 }
