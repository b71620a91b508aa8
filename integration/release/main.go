// Command release shows what users would get if this tree were released now, and fails if that is
// not what it should be:
//
//	go -C integration run ./release
//
// It makes a module proxy of the published modules as they are in the tree, with the version that
// they require of each other. Then it installs the commands from the proxy, compares each module's
// go.mod and go.sum with what "go mod tidy" would write, compiles each outside the workspace with
// the versions that it requires, and looks at what modules that import them have to require.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

const (
	root = ".."
	base = "github.com/truewindow/ratelimit"
)

// published are the folders of the modules.
var published = []string{".", "otellimit", "grpclimit", "connectlimit", "mcplimit",
	"caddylimit", "backend/mysql", "backend/postgres", "backend/sqlite", "cmd"}

func main() {
	if err := check(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func check() error {
	work, err := os.MkdirTemp("", "ratelimit-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	version, err := requirement(filepath.Join(root, "cmd/go.mod"), base)
	if err != nil {
		return err
	}
	for _, dir := range published {
		if err := publish(filepath.Join(work, "proxy"), dir, version); err != nil {
			return err
		}
	}
	t, err := newTool(work)
	if err != nil {
		return err
	}
	err = t.install(version)
	for _, dir := range published {
		err = errors.Join(err, t.tidy(dir))
	}
	return errors.Join(err, t.versions(version), t.weights(version))
}

// requirement returns the version of a module that a go.mod file requires.
func requirement(file, path string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range mod.Require {
		if r.Mod.Path == path {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", file, path)
}

// install installs the commands and runs them.
func (t *tool) install(version string) error {
	for _, name := range []string{"ratelimit", "ratelimit-replay"} {
		if _, err := t.run(t.work, "install", base+"/cmd/"+name+"@"+version); err != nil {
			return err
		}
		said, err := command(t.work, t.env, filepath.Join(t.work, "bin", name), "--version")
		if err != nil {
			return err
		}
		if strings.TrimSpace(said) != version {
			return fmt.Errorf("%s --version prints %q", name, said)
		}
		fmt.Println("release: installed", name, version)
	}
	return nil
}

// tidy compares the go.mod and go.sum files of a module with those that "go mod tidy" writes, but
// for the sums of the modules of the tree, and compiles its packages and tests, those of the root
// for 32 bits too.
func (t *tool) tidy(dir string) error {
	from, to := filepath.Join(root, dir), filepath.Join(t.work, "tidy", filepath.Base(dir))
	if err := copyModule(to, from); err != nil {
		return err
	}
	if _, err := t.run(to, "mod", "tidy"); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if want, got := lines(to, name), lines(from, name); want != got {
			return fmt.Errorf("%s of %s is not tidy: it should be\n%s", name, from, want)
		}
	}
	if dir == "." {
		if err := t.checkTypes(to, "GOARCH=386"); err != nil {
			return err
		}
	}
	return t.checkTypes(to)
}

// lines returns the lines of a file that are not sums of the modules of the tree.
func lines(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err.Error()
	}
	var kept strings.Builder
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, base) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// versions checks that an import raises no version that a program requires already, but that of a
// client library for which the tree has a store.
func (t *tool) versions(version string) error {
	const grpc, otel = "google.golang.org/grpc", "go.opentelemetry.io/otel"
	const redis = "github.com/redis/go-redis/v9"
	lowest, err := requirement(filepath.Join(root, "go.mod"), redis)
	if err != nil {
		return err
	}
	for _, c := range []struct{ packages, want []string }{
		{[]string{"", "/backend/memory", "/httplimit", "/clientip"},
			[]string{grpc + "@v1.70.0", otel + "@v1.34.0", redis + "@" + lowest}},
		{[]string{"/backend/redis"},
			[]string{grpc + "@v1.70.0", otel + "@v1.34.0", redis + "@" + lowest}},
	} {
		dir, err := t.consumer(version, append(c.packages, grpc, otel, redis),
			grpc+"@v1.70.0", otel+"@v1.34.0", redis+"@v9.7.0")
		if err != nil {
			return err
		}
		got, err := t.run(dir, "list", "-m", "-f", "{{.Path}}@{{.Version}}", grpc, otel, redis)
		if err != nil {
			return err
		}
		fmt.Printf("release: with imports of %q: %s\n", c.packages,
			strings.Join(strings.Fields(got), " "))
		if want := strings.Join(c.want, "\n"); strings.TrimSpace(got) != want {
			return fmt.Errorf("imports of %q select\n%swant\n%s", c.packages, got, want)
		}
	}
	return nil
}

// weights counts the lines of other modules in the go.sum of a program.
func (t *tool) weights(version string) error {
	var failed error
	for _, c := range []struct {
		bound    int
		packages string // below the root
	}{
		{0, "/ /algorithm /backend /backend/memory /backend/sql /backend/transactional /clientip " +
			"/conformance /dashboard /driver /edge /httplimit /httplimit/headers " +
			"/httplimit/problem /layer /shadow /topkeys /upstream"},
		{20, "/backend/redis"},
		{14, "/backend/rueidis"},
		{14, "/backend/valkey"},
		{4, "/backend/mysql"},
		{26, "/backend/postgres"},
		{50, "/backend/sqlite"},
		{14, "/grpclimit"},
		{10, "/connectlimit /connectlimit/connectv1"},
		{24, "/mcplimit"},
		{560, "/caddylimit"}, // Caddy
		{20, "/otellimit"},
		{105, "/cmd/ratelimit/command"}, // gRPC, Envoy's messages, YAML, OTLP
	} {
		dir, err := t.consumer(version, strings.Fields(c.packages))
		if err != nil {
			return err
		}
		n := strings.Count(lines(dir, "go.sum"), "\n")
		fmt.Printf("release: %d go.sum lines for %s, at most %d\n", n, c.packages, c.bound)
		if n > c.bound {
			failed = errors.New("an import adds more lines to go.sum than it may")
		}
	}
	return failed
}

// copyModule copies the files of a module without the modules below it.
func copyModule(to, from string) error {
	return filepath.WalkDir(from, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			if rel != "." && (err == nil || entry.Name() == ".git") {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		in, err := os.Open(file)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(filepath.Join(to, rel))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
}
