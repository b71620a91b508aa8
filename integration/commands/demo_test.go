package commands

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestDemo runs the demonstration as a user does, and reads what it prints and draws.
func TestDemo(t *testing.T) {
	bin := daemon.Build(t)
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		scheme := "redis://"
		if tgt.Cluster {
			scheme = "redis+cluster://"
		}
		store, control := scheme+tgt.Addrs[0], tgt.Client(t)
		const tries = 5
		for range tries {
			before, err := servers.CountWrites(t.Context(), control)
			if err != nil {
				t.Fatal(err)
			}
			d := runDemo(t, bin, store)
			after, err := servers.CountWrites(t.Context(), control)
			if err != nil {
				t.Fatal(err)
			}
			d.checkExact(t)
			// Units of one burst travel together, and are written together.
			if bursts := int64(d.exact.admitted) / 5; after-before < bursts {
				t.Errorf("the server wrote %d times for %d units", after-before, d.exact.admitted)
			}
			if t.Failed() {
				t.Fatalf("ratelimit demo printed:\n%s", d.out)
			}
			if d.fixed.most == 2*demoLimit && d.fixed.admitted > d.exact.admitted {
				return
			}
			// On a machine that is busy at both edges a burst that belongs before one comes after
			// it. The exact log is exact in any case.
			t.Logf("the fixed window admitted %d in a window, and %d in all",
				d.fixed.most, d.fixed.admitted)
		}
		t.Errorf("in %d runs the fixed window never admitted twice its limit in a window, and more than the exact log in all", tries)
	})
}

const demoLimit, demoWindow = 5, "300ms"

// demonstration is what one run told of each limiter.
type demonstration struct {
	out          string
	fixed, exact demoSeries
}

type demoSeries struct{ most, offered, admitted, refused int }

func runDemo(t *testing.T, bin, store string) *demonstration {
	t.Helper()
	file := filepath.Join(t.TempDir(), "demo.svg")
	cmd := exec.CommandContext(t.Context(), bin, "demo",
		fmt.Sprintf("--limit=%d/%s", demoLimit, demoWindow), "--store="+store+"?timeout=1s",
		"--svg="+file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("ratelimit demo: %v\n%s%s", err, out, &stderr)
	}
	d := &demonstration{out: string(out)}
	d.fixed, d.exact = d.row(t, "Fixed window"), d.row(t, "Exact log")
	if !strings.Contains(d.out, "\nExact log, on "+store+"\n") {
		t.Error("the store is not named")
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := svgText(t, svg)
	for _, want := range []string{"Fixed window: " + d.fixed.described(),
		"Exact log: " + d.exact.described(), "— on " + store} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q:\n%s", want, text)
		}
	}
	if drawn, want := bytes.Contains(svg, []byte(`class="over"`)),
		d.fixed.most > demoLimit; drawn != want {
		t.Errorf("what is above the limit is drawn: %t, want %t", drawn, want)
	}
	return d
}

// row returns the figures of the last table, and checks that they agree with each other.
func (d *demonstration) row(t *testing.T, name string) demoSeries {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` +(\d+) = (\S+) × limit +(\d+) +(\d+) +(\d+)$`).
		FindStringSubmatch(d.out)
	if m == nil {
		t.Fatalf("no line of figures of the %s:\n%s", name, d.out)
	}
	var n [6]int
	for _, i := range []int{1, 3, 4, 5} {
		n[i], _ = strconv.Atoi(m[i])
	}
	s := demoSeries{most: n[1], offered: n[3], admitted: n[4], refused: n[5]}
	if s.admitted+s.refused != s.offered || s.most > s.admitted || m[2] != s.quotient() {
		t.Errorf("the figures do not agree: %s", m[0])
	}
	return s
}

func (d *demonstration) checkExact(t *testing.T) {
	t.Helper()
	if d.exact.most != demoLimit {
		t.Errorf("the exact log admitted %d in a window, want %d", d.exact.most, demoLimit)
	}
	if d.fixed.offered != d.exact.offered {
		t.Errorf("%d units were offered to the fixed window and %d to the exact log",
			d.fixed.offered, d.exact.offered)
	}
}

func (s demoSeries) quotient() string { return fmt.Sprintf("%.2f", float64(s.most)/demoLimit) }

// described is what the picture's description says of the limiter.
func (s demoSeries) described() string {
	return fmt.Sprintf("at most %d units in any window, %s times the limit; %d admitted of %d offered.", s.most, s.quotient(), s.admitted, s.offered)
}

// svgText returns all text of a picture. The picture must be well-formed.
func svgText(t *testing.T, svg []byte) string {
	t.Helper()
	var text strings.Builder
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("the picture: %v", err)
		}
		if chars, ok := token.(xml.CharData); ok {
			text.Write(chars)
		}
	}
}
