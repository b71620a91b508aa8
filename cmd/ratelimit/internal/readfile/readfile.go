// Package readfile reads the files of a configuration.
package readfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Errors of [Regular], in a [fs.PathError].
var (
	ErrNotRegular = errors.New("this is not a regular file")
	ErrTooLarge   = errors.New("the file is too large")
)

// Regular returns the content of a regular file, or of the one that a link leads to. Anything else,
// such as a pipe, is [ErrNotRegular]: reading it could wait forever. More than most bytes are
// [ErrTooLarge].
func Regular(path string, most int64) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	// Opening a device can do something to it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return fail(ErrNotRegular)
	}
	// If a pipe has replaced the file since, opening it does not wait.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return fail(ErrNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return fail(ErrTooLarge)
	}
	return data, nil
}

// Credentials is Regular of a file of tokens, certificates or a password.
func Credentials(path string) ([]byte, error) { return Regular(path, 1<<20) }
