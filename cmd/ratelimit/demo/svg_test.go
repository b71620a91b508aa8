package demo

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
			"title": {"At most 30 units in any 1.5s?"},
			"desc": {
				"Fixed window: at most 60 units in any window, 2.00 times the limit; " +
					"120 of 190 admitted, 0 refused wrongly.",
				"Exact log: at most 30 units in any window, 1.00 times the limit; " +
					"90 of 190 admitted, 0 refused wrongly.",
			},
			"text": {"on redis://<&>", "\nFixed window: 2.00 × the limit",
				"\nSliding window counter: 1.73 × the limit", "\nToken bucket: 1.90 × the limit",
				"\nExact log: 1.00 × the limit", "\n87 of 190 admitted, 33 refused wrongly",
				"\n60\n", "\n0\n", "\n30\n", "\nlimit", "\n750ms"},
		} {
			for _, want := range wants {
				if !strings.Contains(texts[element], want) {
					t.Errorf("%s lacks %q: %s", element, want, texts[element])
				}
			}
		}
		if n := strings.Count(b.String(), `class="alert"`); n != 3 {
			t.Errorf("%d of the four are above the limit", n)
		}
	})
}

func TestSVGOfNothing(t *testing.T) {
	var b bytes.Buffer
	r := newRecording(ratelimit.PerSecond("second", 5))
	if err := writeSVG(&b, &r, "memory"); err != nil {
		t.Fatal(err)
	}
	parseSVG(t, b.Bytes())
}

func TestSVGWriteFails(t *testing.T) {
	r := newRecording(ratelimit.PerSecond("second", 5))
	pipe, w := io.Pipe()
	pipe.Close()
	if err := writeSVG(w, &r, "memory"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the error is %v", err)
	}
}
