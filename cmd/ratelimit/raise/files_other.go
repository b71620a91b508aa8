//go:build !unix

package raise

import (
	"errors"
	"io/fs"
	"os"
)

// lock fails: folders have no locks here.
func lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

func keepOwner(*os.File, fs.FileInfo) error { return nil }
