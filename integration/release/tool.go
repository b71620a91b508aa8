package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// publish adds the module of a folder to a proxy.
func publish(proxy, dir, version string) error {
	m := module.Version{Path: path.Join(base, dir), Version: version}
	to := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		return err
	}
	var zip bytes.Buffer
	if err := modzip.CreateFromDir(&zip, m, filepath.Join(root, dir)); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod,
		version + ".zip": zip.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// A tool runs the go command with the proxy, without a workspace, and with a module cache of its
// own, since the tree changes and its version does not.
type tool struct {
	work string
	env  []string
}

func newTool(work string) (*tool, error) {
	out, err := command(".", os.Environ(), "go", "env", "-json", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	var usual struct{ GOPROXY, GOMODCACHE string }
	if err := json.Unmarshal([]byte(out), &usual); err != nil {
		return nil, err
	}
	proxies := []string{"file://" + work + "/proxy",
		"file://" + filepath.ToSlash(usual.GOMODCACHE) + "/cache/download", usual.GOPROXY}
	return &tool{work, append(os.Environ(), "GOPROXY="+strings.Join(proxies, ","), "GOWORK=off",
		"GONOSUMDB="+base+","+base+"/*", "GOMODCACHE="+filepath.Join(work, "cache"),
		"GOBIN="+filepath.Join(work, "bin"), "CGO_ENABLED=0",
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false")}, nil
}

// run runs the go command in a folder and returns its output.
func (t *tool) run(dir string, args ...string) (string, error) {
	return command(dir, t.env, "go", args...)
}

func command(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), dir, err, &stderr)
	}
	return string(out), err
}

// consumer makes a module that requires some versions and imports some packages, tidies and
// compiles it, and returns its folder. A package that begins with a slash is one of the tree.
func (t *tool) consumer(
	version string, packages []string, required ...string,
) (dir string, err error) {
	if dir, err = os.MkdirTemp(t.work, "consumer-"); err != nil {
		return "", err
	}
	program := "package main\n\n"
	for _, p := range packages {
		if p == "" || p[0] == '/' {
			p = strings.TrimSuffix(base+p, "/")
		}
		program += fmt.Sprintf("import _ %q\n", p)
	}
	program += "\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		return "", err
	}
	edit := []string{"mod", "edit", "-go=1.25.0", "-require=" + base + "@" + version}
	for _, r := range required {
		edit = append(edit, "-require="+r)
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/consumer"}, edit, {"mod", "tidy"},
	} {
		if _, err := t.run(dir, args...); err != nil {
			return "", err
		}
	}
	return dir, t.checkTypes(dir)
}
