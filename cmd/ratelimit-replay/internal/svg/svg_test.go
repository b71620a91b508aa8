package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	const hostile = `<a href="x">&`
	p := New(120, "title "+hostile, "description "+hostile)
	p.Text("small", 10.25, -3, "end", "text "+hostile)
	p.Printf(`<rect class="area" x="%d" y="2"/>`, 1)
	var b strings.Builder
	n, err := p.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Errorf("%d of %d bytes: %v", n, b.Len(), err)
	}
	type text struct {
		Class  string `xml:"class,attr"`
		X      string `xml:"x,attr"`
		Y      string `xml:"y,attr"`
		Anchor string `xml:"text-anchor,attr"`
		Text   string `xml:",chardata"`
	}
	var got struct {
		ViewBox string `xml:"viewBox,attr"`
		Title   string `xml:"title"`
		Desc    string `xml:"desc"`
		Texts   []text `xml:"text"`
		Rects   []struct {
			Class string `xml:"class,attr"`
		} `xml:"rect"`
	}
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v:\n%s", err, &b)
	}
	if got.ViewBox != "0 0 800 120" || got.Title != "title "+hostile ||
		got.Desc != "description "+hostile || len(got.Texts) != 2 || len(got.Rects) != 2 {
		t.Fatalf("%+v", got)
	}
	if want := (text{"title", "24", "34", "start", "title " + hostile}); got.Texts[0] != want {
		t.Errorf("the title is %+v", got.Texts[0])
	}
	if want := (text{"small", "10.3", "-3", "end", "text " + hostile}); got.Texts[1] != want {
		t.Errorf("the text is %+v", got.Texts[1])
	}
}

// TestDark checks that all text and lines have other colors on a dark background, where the colors
// for a light one are hardly visible.
func TestDark(t *testing.T) {
	light, dark, _ := strings.Cut(style, "@media (prefers-color-scheme: dark)")
	faint := regexp.MustCompile(`(?m)^ *(\S+) .*(?:#ffffff|#1f2328|#59636e)`)
	rules := faint.FindAllStringSubmatch(light, -1)
	if len(rules) != 3 {
		t.Errorf("rules: %q", rules)
	}
	for _, rule := range rules {
		if !strings.Contains(dark, rule[1]+" {") {
			t.Errorf("%s has the same color on a dark background", rule[1])
		}
	}
}

func TestSteps(t *testing.T) {
	s := NewSteps(96)
	for x, y := range []float64{96, 95, 96, 96, 96, 0, 47.96, 47.96} {
		s.To(float64(88*x), y)
	}
	if got, want := s.End(704), "M0 96H88V95H176V96H440V0H528V48H704V96Z"; got != want {
		t.Errorf("got %s", got)
	}
	if got := NewSteps(10.04).End(704); got != "M0 10Z" {
		t.Errorf("nothing is %s", got)
	}
}

func TestWriteFails(t *testing.T) {
	pipe, w := io.Pipe()
	pipe.Close()
	if _, err := New(10, "", "").WriteTo(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the error is %v", err)
	}
}
