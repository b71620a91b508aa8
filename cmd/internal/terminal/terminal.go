// Package terminal recognizes terminals, and escapes what is printed on them.
package terminal

import (
	"io"
	"io/fs"
	"os"
)

// Is reports whether lines on w can be redrawn.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
