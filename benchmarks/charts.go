package main

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/truewindow/ratelimit/internal/svg"
)

// Colours that are visible on light and dark backgrounds.
const (
	ourColour  = "#218bff"
	peerColour = "#818b98"
)

// colourOf returns the colour of an entry: this module differs from the others.
func colourOf(entry string) string {
	if strings.HasPrefix(entry, ours) {
		return ourColour
	}
	return peerColour
}

// charts returns the functions that write the charts, by file name.
func (r *report) charts() map[string]func(io.Writer) error {
	draw := func(p *svg.Picture) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := p.WriteTo(w)
			return err
		}
	}
	shown := []string{ours, oursRueidis, oursValkey, zset,
		"redis_rate", "rueidislimiter", "throttled"}
	return map[string]func(io.Writer) error{
		"exactness.svg": r.writeExactness,
		"callers.svg": draw(r.linesChart("Decisions per second over concurrent callers",
			"Server on loopback, on the same cores as its clients. Both axes are logarithmic.",
			panel{"10k keys", "load", "rate", "10k keys, c=", shown},
			panel{"one hot key", "load", "rate", "hot key, c=", shown})),
		"memory.svg": draw(r.linesChart("Memory of a key on the server over its limit",
			"The most bytes that a key takes. Both axes are logarithmic.",
			panel{"bytes per key", "memory", "worst", "", nil})),
		"keys.svg": draw(r.linesChart("Many keys in process",
			"Over the number of keys. Both axes are logarithmic.",
			panel{"ns per decision", "scale", "time", "", nil},
			panel{"heap bytes per key", "scale", "heap", "", nil})),
	}
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
