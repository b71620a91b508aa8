package main

import (
	"io"
	"path/filepath"
)

// charts has the function that writes each chart, by the name of its file.
func (r *report) charts() map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{"exactness.svg": r.writeExactness}
}

// writeCharts draws all charts into a directory.
func (r *report) writeCharts(dir string) error {
	for name, write := range r.charts() {
		if err := writeFile(filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	return nil
}
