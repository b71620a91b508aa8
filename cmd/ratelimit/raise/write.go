package raise

import (
	"io/fs"
	"os"
	"path/filepath"
)

// newMode is that of a file that was not there: the limits of a service are no secret.
const newMode fs.FileMode = 0o644

// replace writes a file with the owner and the mode that it has, in one step for whoever reads it.
func replace(path string, data []byte) (err error) {
	mode := newMode
	info, statErr := os.Stat(path)
	if statErr == nil {
		mode = info.Mode().Perm()
	}
	// Patterns of include leave hidden files out.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if statErr == nil {
		if err = keepOwner(f, info); err != nil {
			return err
		}
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
