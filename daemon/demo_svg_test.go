package daemon

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

// parseSVG returns the text of each kind of element, and fails unless the document is well-formed.
func parseSVG(t *testing.T, document []byte) map[string]string {
	t.Helper()
	texts := map[string]string{}
	decoder := xml.NewDecoder(bytes.NewReader(document))
	var open []string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name.Local)
			texts[token.Name.Local] += "\n"
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				texts[open[len(open)-1]] += string(token)
			}
		}
	}
}

func TestSVG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, ratelimit.Limit{Max: 30, Window: 1500 * time.Millisecond}, 0)
		var b bytes.Buffer
		if err := writeSVG(&b, r, "redis://<&>"); err != nil {
			t.Fatal(err)
		}
		texts := parseSVG(t, b.Bytes())
		for element, wants := range map[string][]string{
			"title": {"30 units in 1.5s"},
			"desc": {
				"Fixed window: at most 60 units in any window, 2.00 times the limit; 180 admitted of 228 offered.",
				"Exact log: at most 30 units in any window, 1.00 times the limit; 120 admitted of 228 offered.",
			},
			"text": {"Fixed window: 60 in 1.5s, 2.00 × the limit",
				"Exact log: 30 in 1.5s, 1.00 × the limit", "\n0 of 38", "\n30 of 38",
				"\nlimit", "\n750ms"},
			"tspan": {"redis://<&>"},
			"style": {"prefers-color-scheme: dark"},
		} {
			for _, want := range wants {
				if !strings.Contains(texts[element], want) {
					t.Errorf("%s lacks %q: %s", element, want, texts[element])
				}
			}
		}
		if n := strings.Count(b.String(), `class="over"`); n != 1 {
			t.Errorf("%d of the two are above the limit", n)
		}
	})
}

func TestSVGOfNothing(t *testing.T) {
	var b bytes.Buffer
	if err := writeSVG(&b, &recording{limit: ratelimit.PerSecond("second", 5)},
		"memory"); err != nil {
		t.Fatal(err)
	}
	parseSVG(t, b.Bytes())
}

// hiccup is a writer whose third write fails, and no other.
type hiccup int

func (h *hiccup) Write(p []byte) (int, error) {
	if *h++; *h == 3 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestSVGWriteFails(t *testing.T) {
	var w hiccup
	err := writeSVG(&w, &recording{limit: ratelimit.PerSecond("second", 5)}, "memory")
	if !errors.Is(err, io.ErrShortWrite) || w != 3 {
		t.Errorf("after %d writes: %v", w, err)
	}
}
