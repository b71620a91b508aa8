// Command map draws the packages of this repository as docs/map.svg, and lists them in docs/map.md.
// "make map" runs it.
package main

import (
	"flag"
	"go/token"
	"log"
	"os"
	"path/filepath"

	"github.com/truewindow/ratelimit/internal/tree"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	if err := write(*root); err != nil {
		log.Fatal(err)
	}
}

// write writes the picture and the page.
func write(root string) error {
	page, picture, err := draw(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, pageFile), []byte(page), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pictureFile), []byte(picture), 0o644)
}

const (
	pageFile    = "docs/map.md"
	pictureFile = "docs/map.svg"
)

func load(root string) ([]*tree.Package, error) { return tree.Load(token.NewFileSet(), root) }

// draw returns the page and the picture as they should be.
func draw(root string) (page, picture string, err error) {
	text, err := os.ReadFile(filepath.Join(root, pageFile))
	if err != nil {
		return "", "", err
	}
	packages, err := load(root)
	if err != nil {
		return "", "", err
	}
	page, err = withRooms(string(text), packages)
	if err != nil {
		return "", "", err
	}
	return page, newPlan(packages, stepsOf(page, packages)).svg(), nil
}
