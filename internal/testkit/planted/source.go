package planted

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sourceVariable names, in the environment of a process, the fault that is tried.
const sourceVariable = "RATELIMIT_PLANTED"

// A Fault is a fault in a source file of the package under test. Old, which is there once, becomes
// New, in which planted("name") reports whether the fault is the one that is tried. Without a File
// it is planted with another.
type Fault = struct {
	Name string
	Test string // pattern of the tests that must fail
	File string
	Old  string
	New  string
}

// Running reports whether this process is one of InSource.
func Running() bool { return os.Getenv(sourceVariable) != "" }

// InSource plants faults in the sources of package name in dir, all in one binary of the tests in
// the working folder, and fails t unless the tests of each fault fail. These processes have env in
// their environment.
func InSource(t *testing.T, dir, name string, faults []Fault, env ...string) {
	t.Helper()
	if Running() {
		t.Skip("it runs the others")
	}
	binary := build(t, dir, name, faults)
	for _, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), binary, "-test.failfast", "-test.count=10",
				"-test.run="+f.Test)
			tests.Env = append(append(os.Environ(), sourceVariable+"="+f.Name, "GOMAXPROCS=1"),
				env...)
			out, err := tests.CombinedOutput()
			if err == nil {
				t.Errorf("not found:\n%s", out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "_test.go:") || strings.Contains(line, "The rule ") {
					t.Log(strings.TrimSpace(line))
					break
				}
			}
		})
	}
}

// build returns the path of a binary of the tests with all faults in the sources in from.
func build(t *testing.T, from, name string, faults []Fault) string {
	t.Helper()
	sources := map[string]string{"planted.go": "package " + name + `

import "os"

var fault = os.Getenv("` + sourceVariable + `")

func planted(name string) bool { return fault == name }
`}
	for _, f := range faults {
		if f.File == "" {
			continue
		}
		if sources[f.File] == "" {
			b, err := os.ReadFile(filepath.Join(from, f.File))
			if err != nil {
				t.Fatal(err)
			}
			sources[f.File] = string(b)
		}
		if n := strings.Count(sources[f.File], f.Old); n != 1 {
			t.Fatalf("%s: the source has its place %d times", f.Name, n)
		}
		sources[f.File] = strings.Replace(sources[f.File], f.Old, f.New, 1)
	}
	dir := t.TempDir()
	replaced := make(map[string]string)
	for file, source := range sources {
		path, err := filepath.Abs(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		replaced[path] = filepath.Join(dir, file)
		write(t, replaced[path], []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay"), overlay)
	binary := filepath.Join(dir, name+".test")
	compile := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", binary,
		"-overlay", filepath.Join(dir, "overlay"), ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
