package envoyfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// ReadFiles reads the files at paths.
func ReadFiles(paths ...string) ([]File, error) {
	files := make([]File, 0, len(paths))
	var failed []error
	for _, path := range paths {
		text, err := readfile.Regular(path, maxFile)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		files = append(files, File{path, text})
	}
	return files, errors.Join(failed...)
}

// A Runtime is where envoyproxy/ratelimit has its files, as its environment variables say.
type Runtime struct {
	Root           string // RUNTIME_ROOT
	Subdirectory   string // RUNTIME_SUBDIRECTORY
	AppDirectory   string // RUNTIME_APPDIRECTORY
	IgnoreDotFiles bool   // RUNTIME_IGNOREDOTFILES
	// WatchRoot is RUNTIME_WATCH_ROOT: all files below Root/Subdirectory whose path there begins
	// with AppDirectory and then a slash or a dot. Otherwise all below
	// Root/Subdirectory/AppDirectory.
	WatchRoot bool
}

// Directory returns the directory below which the files are.
func (r Runtime) Directory() string {
	if r.WatchRoot {
		return filepath.Join(r.Root, r.Subdirectory)
	}
	return filepath.Join(r.Root, r.Subdirectory, r.AppDirectory)
}

// ReadFiles reads the files. They are in the order of their paths, with each slash as a dot. Links
// to directories are not followed, and names that begin with two dots are ignored, because
// Kubernetes has the files of a volume a second time behind them.
func (r Runtime) ReadFiles() ([]File, error) {
	dir := r.Directory()
	type found struct{ key, path string }
	var all []found
	walk := func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil || relative == "." {
			return err
		}
		isDir := entry.IsDir()
		if r.ignores(entry.Name()) {
			if isDir {
				return fs.SkipDir
			}
			return nil
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			isDir = info.IsDir()
		}
		key := strings.ReplaceAll(filepath.ToSlash(relative), "/", ".")
		if isDir || r.WatchRoot && !strings.HasPrefix(key, r.AppDirectory+".") {
			return nil
		}
		all = append(all, found{key, path})
		return nil
	}
	// The separator follows a link to the directory itself.
	if err := filepath.WalkDir(dir+string(filepath.Separator), walk); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.key, b.key) })
	paths := make([]string, len(all))
	for i, f := range all {
		paths[i] = f.path
	}
	return ReadFiles(paths...)
}

func (r Runtime) ignores(name string) bool {
	return strings.HasPrefix(name, "..") || r.IgnoreDotFiles && strings.HasPrefix(name, ".")
}
