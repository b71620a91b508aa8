//go:build unix

package raise

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lock waits until no other command changes a file of a folder. The lock ends with unlock, or with
// the process.
func lock(folder string) (unlock func(), err error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		d.Close()
		return nil, &os.PathError{Op: "lock", Path: folder, Err: err}
	}
	return func() { d.Close() }, nil
}

// keepOwner gives a file the owner and the group of another one, whose reader might be nobody else.
func keepOwner(f *os.File, of fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	want, own := of.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if want.Uid == own.Uid && want.Gid == own.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
