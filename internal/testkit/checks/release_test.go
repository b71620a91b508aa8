package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	action = regexp.MustCompile(`(?m)^ +(?:- )?uses: (.*)$`)
	pinned = regexp.MustCompile(`^([\w-]+/[\w-]+)[\w/-]*@([0-9a-f]{40}) # v\d+\.\d+\.\d+$`)
	job    = regexp.MustCompile(`(?m)^  [\w-]+:\n`)
	used   = regexp.MustCompile(`(?m)^\t(\.\S*)$`)
	next   = regexp.MustCompile(`(?m)^\tgithub.com/truewindow/ratelimit (v\S+)$`)
)

// TestWorkflows checks that each action is pinned by the commit of a version, which is the same in
// all workflows, and that each job says which permissions it has.
func TestWorkflows(t *testing.T) {
	t.Chdir(root)
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	commits := make(map[string]string)
	for _, file := range files {
		text := readFile(t, file)
		for _, m := range action.FindAllStringSubmatch(text, -1) {
			pin := pinned.FindStringSubmatch(m[1])
			if pin == nil {
				t.Errorf("%s: %s is not pinned by a commit with its version", file, m[1])
			} else if other := commits[pin[1]]; other != "" && other != pin[2] {
				t.Errorf("%s: %s has another commit in another place: %s", file, m[1], other)
			} else {
				commits[pin[1]] = pin[2]
			}
		}
		before, jobs, _ := strings.Cut(text, "\njobs:\n")
		if !strings.Contains(before, "\npermissions: {}\n") {
			t.Errorf("%s grants permissions to all jobs", file)
		}
		found := job.FindAllStringIndex(jobs, -1)
		if len(found) == 0 {
			t.Errorf("%s: found no job", file)
		}
		for i, at := range found {
			end := len(jobs)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			if body := jobs[at[0]:end]; !strings.Contains(body, "\n    permissions:\n") {
				t.Errorf("%s: a job does not say its permissions:\n%s", file, body)
			}
		}
	}
}

// TestRelease releases the next version to a repository in a folder.
func TestRelease(t *testing.T) {
	t.Chdir(root)
	modules := strings.Fields(run(t, "scripts/release.sh", "modules"))
	published := []string{"caddylimit"}
	for _, m := range used.FindAllStringSubmatch(readFile(t, "go.work"), -1) {
		published = append(published, filepath.Clean(m[1]))
	}
	if !sameSet(modules, published) {
		t.Errorf("scripts/release.sh has the modules %q, go.work has %q", modules, published)
	}

	version := next.FindStringSubmatch(readFile(t, "cmd/go.mod"))[1]
	changes := readFile(t, "CHANGELOG.md")
	files := map[string]string{"scripts/release.sh": readFile(t, "scripts/release.sh")}
	for _, module := range modules {
		file := filepath.Join(module, "go.mod")
		files[file] = readFile(t, file)
	}
	origin := t.TempDir()
	run(t, "git", "init", "--quiet", "--bare", origin)
	writeFile(t, filepath.Join(origin, "hooks/post-receive"),
		"#!/bin/sh\ncut -d ' ' -f 3 | sed 's#refs/tags/##' | paste -s -d ' ' - >>pushes\n")
	t.Chdir(t.TempDir())
	for file, text := range files {
		writeFile(t, file, text)
	}
	run(t, "git", "init", "--quiet", "--initial-branch=main")
	run(t, "git", "config", "user.name", "a person")
	run(t, "git", "config", "user.email", "person@example.com")
	run(t, "git", "remote", "add", "origin", origin)

	refused := func(want string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "scripts/release.sh", "push", version).
			CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	}
	heading := regexp.MustCompile(`(?m)^(## \[` + regexp.QuoteMeta(version[1:]) + `\] - ).*$`)
	writeFile(t, "CHANGELOG.md", heading.ReplaceAllString(changes, "${1}not yet tagged"))
	refused("has no date")
	writeFile(t, "CHANGELOG.md", heading.ReplaceAllString(changes, "${1}2026-12-01"))
	run(t, "git", "add", ".")
	refused("not committed")
	run(t, "git", "commit", "--quiet", "--message", "all")
	refused("not the newest of main")
	run(t, "git", "push", "--quiet", "origin", "main")
	run(t, "scripts/release.sh", "push", version)

	var others []string
	for _, module := range modules[1:] {
		others = append(others, module+"/"+version)
	}
	pushes := strings.Split(readFile(t, filepath.Join(origin, "pushes")), "\n")
	if len(pushes) != 4 || pushes[2] != version {
		t.Fatalf("the tag that starts the workflow is not pushed last and alone: %q", pushes)
	}
	if tags := strings.Fields(pushes[1]); !sameSet(tags, others) {
		t.Errorf("the tags are %q, want %q", tags, others)
	}
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	return string(out)
}

// writeFile writes a file that can be executed, and makes its folder.
func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
