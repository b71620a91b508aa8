package watch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// maxFile bounds what is hashed of a file, in bytes: none is loaded that is larger.
const maxFile = 16 << 20

// A snapshot is what the file system says of files, in order.
type snapshot []file

type file struct {
	path string
	info os.FileInfo // of what links lead to, or nil
}

// lookAt looks at paths and at the files of patterns. A path that is not there is a file without
// info.
func lookAt(patterns []string) snapshot {
	var l snapshot
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil || len(paths) == 0 {
			paths = []string{p}
		}
		for _, path := range paths {
			info, _ := os.Stat(path)
			l = append(l, file{path, info})
		}
	}
	return l
}

func (l snapshot) equal(other snapshot) bool { return slices.EqualFunc(l, other, file.equal) }

// equal compares identities too: in a mounted ConfigMap a link is replaced, and the new files may
// have the sizes and times of the old ones.
func (f file) equal(other file) bool {
	a, b := f.info, other.info
	if f.path != other.path || a == nil || b == nil {
		return f.path == other.path && a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) &&
		a.Mode() == b.Mode()
}

// hash returns the hash of the paths and contents of regular files that can be read.
func (l snapshot) hash() string {
	h := sha256.New()
	for _, f := range l {
		if f.info == nil {
			continue
		}
		fmt.Fprintf(h, "%q", f.path)
		if content, err := readfile.Regular(f.path, maxFile); err == nil {
			h.Write(content)
		} // else a load will tell the error
	}
	return hex.EncodeToString(h.Sum(nil))
}
