package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/tree"
)

const repository = "../.."

// TestUpToDate compares the page and the picture, except its sizes, with the packages.
func TestUpToDate(t *testing.T) {
	page, picture, err := draw(repository)
	if err != nil {
		t.Fatal(err)
	}
	if page != read(t, pageFile) || words(t, picture) != words(t, read(t, pictureFile)) {
		t.Errorf("%s or %s is not up to date: run \"make map\"", pageFile, pictureFile)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// words returns the description in a picture.
func words(t *testing.T, picture string) string {
	t.Helper()
	var svg struct {
		Desc string `xml:"desc"`
	}
	if err := xml.Unmarshal([]byte(picture), &svg); err != nil {
		t.Fatal(err)
	}
	return svg.Desc
}

// repositoryOf writes a repository with a package for each of imports, such as "dir imported".
func repositoryOf(t *testing.T, page string, imports ...string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{pageFile: page}
	for _, line := range imports {
		words := strings.Fields(line)
		code := "// Package p does " + words[0] +
			":\n//\n//\ta list\npackage p\n\nfunc f() { f() }\n"
		for _, dir := range words[1:] {
			path := strings.TrimSuffix(tree.Module+"/"+strings.TrimPrefix(dir, "."), "/")
			code = strings.Replace(code, "\n\n", "\n\nimport _ \""+path+"\"\n\n", 1)
		}
		files[words[0]+"/a.go"] = code
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const somePage = "# Map\n" + roomsBegin + "old\n" + roomsEnd + `
### A Take on memory

1. First ` + "`root.go`" + `
2. Then ` + "`backend/a.go`" + `
3. Then ` + "`backend/lua/b.lua` and `other/c.go`" + `
4. Last ` + "`root.go`" + `

## Other
5. Not ` + "`root.go`" + `
`

func TestDraw(t *testing.T) {
	root := repositoryOf(t, somePage,
		". internal/low", "backend . internal/low", "cmd/x backend .", "layer internal/own",
		"internal/own", "internal/low", "internal/alone", "integration/one cmd/x",
		"integration/two")
	if err := write(root); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	rooms := roomsBegin + "| directory | the package |\n|---|---|\n| [`.`](../.) | does .. |\n"
	if !strings.Contains(string(page), rooms) {
		t.Errorf("page:\n%s", page)
	}
	picture, err := os.ReadFile(filepath.Join(root, pictureFile))
	if err != nil {
		t.Fatal(err)
	}
	want := `Packages as boxes, each above those that it imports.
cmd/x: imports backend;
backend: imports .; memory 2–3;
.: imports internal/low; memory 1; memory 4;
layer: imports internal/own;
internal/low:
internal/own:
integration:
internal/alone:
`
	if got := words(t, string(picture)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDrawReportsWhatIsMissing(t *testing.T) {
	for _, root := range []string{
		t.TempDir(),
		repositoryOf(t, "no marks", "."),
		repositoryOf(t, somePage, "cmd"),
	} {
		if err := os.MkdirAll(filepath.Join(root, "bare"), 0o700); err != nil {
			t.Fatal(err)
		}
		bare := filepath.Join(root, "bare/a.go")
		if err := os.WriteFile(bare, []byte("package bare\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write(root); err == nil {
			t.Errorf("%s: no error", root)
		}
	}
}

// TestPlaces checks that boxes are in their lane, do not overlap, and are above those they import.
func TestPlaces(t *testing.T) {
	many := repositoryOf(t, somePage, strings.Split(manyRooms, "\n")...)
	for _, root := range []string{repository, many} {
		packages, err := load(root)
		if err != nil {
			t.Fatal(err)
		}
		p := newPlan(packages, nil)
		for _, row := range append(slices.Clone(p.rows), p.apart) {
			for i, b := range row {
				if b.x < margin || b.x+b.w > p.w-margin {
					t.Errorf("%s is from %.0f to %.0f", b.dir, b.x, b.x+b.w)
				}
				if l := b.lane; l != nil && (b.x < l.x || b.x+b.w > l.x+l.w) {
					t.Errorf("%s is from %.0f to %.0f, outside of %q", b.dir, b.x, b.x+b.w, l.title)
				}
				for _, other := range row[:i] {
					if b.x < other.x+other.w && other.x < b.x+b.w &&
						b.y < other.y+other.h && other.y < b.y+b.h {
						t.Errorf("%s is on %s", b.dir, other.dir)
					}
				}
				for _, to := range b.imports {
					if b.y+b.h >= to.y {
						t.Errorf("%s is not above %s", b.dir, to.dir)
					}
				}
			}
		}
	}
}

const manyRooms = `. internal/deadline internal/storedkey
algorithm . internal/luaconst
backend/serverstore
backend/lua . internal/luaconst
backend/memory . internal/longkey
backend/internal/keyspace . internal/storedkey
backend/internal/denycache . backend/serverstore internal/longkey
backend/internal/batch . backend/serverstore backend/internal/denycache
backend/internal/server backend/lua backend/internal/keyspace backend/internal/batch
backend/internal/pipelined backend/internal/server
backend/redis backend/internal/server
backend/rueidis backend/internal/pipelined
backend/valkey backend/internal/pipelined
layer backend/memory internal/deadline layer/internal/pace
layer/breaker . layer/internal/pace
layer/internal/pace
httplimit . internal/problem
cmd/ratelimit algorithm backend/redis layer layer/breaker internal/problem
internal/deadline
internal/luaconst
internal/longkey
internal/problem
internal/storedkey
conformance . algorithm
conformance/linear conformance
integration/soak conformance
integration/cluster conformance`
