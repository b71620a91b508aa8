package shipping

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	image   = "ratelimit-of-the-tests"
	goImage = "golang:1.26"

	// The same in every run, so that an image of the same sources is not built again.
	version, commit = "v0.0.0-test", "0123456789abcdef"
)

// build builds the image once for all tests.
func build(t *testing.T) {
	t.Helper()
	servers.NeedImage(t, goImage)
	if _, err := exec.LookPath("docker"); err != nil {
		servers.Need(t, err.Error())
	}
	if err := builtOnce(); err != nil {
		t.Fatal(err)
	}
}

var builtOnce = sync.OnceValue(func() error {
	files, err := buildContext()
	if err != nil {
		return err
	}
	build := exec.Command("docker", "build", "--tag", image,
		"--build-arg", "VERSION="+version, "--build-arg", "COMMIT="+commit,
		"--build-arg", "GOPROXY", "--build-arg", "HTTP_PROXY", "--build-arg", "HTTPS_PROXY",
		"--build-arg", "NO_PROXY", "-")
	build.Stdin = files
	began := time.Now()
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("docker build: %w\n%s", err, out)
	}
	servers.Measured("the image of the service is built in %.1f s", time.Since(began).Seconds())
	return nil
})

// buildContext returns an archive of the files of the repository as they are, without ignored ones.
func buildContext() (*bytes.Buffer, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = servers.Module
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := add(w, name); err != nil {
			return nil, err
		}
	}
	return &archive, w.Close()
}

// add adds a file of the repository to an archive, unless it is deleted.
func add(w *tar.Writer, name string) error {
	path := filepath.Join(servers.Module, name)
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	if info.Mode().Type() != 0 {
		return fmt.Errorf("%s is %v, not a file", name, info.Mode().Type()&fs.ModeType)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// docker runs a command of the engine and returns what it prints.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("docker", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}
