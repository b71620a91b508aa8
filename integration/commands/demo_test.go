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
			// Units of one burst are batched, and written together.
			admitted := d.exact().admitted
			if after-before < int64(admitted)/demoLimit {
				t.Errorf("the server wrote %d times for %d units", after-before, admitted)
			}
			if t.Failed() {
				t.Fatalf("ratelimit demo printed:\n%s", d.out)
			}
			if d.showsAll() {
				return
			}
			// On a busy machine a burst may come after the edge that it was due before.
			t.Logf("a run that was too slow:\n%s", d.out)
		}
		t.Errorf("none of %d runs showed what each algorithm does", tries)
	})
}

const demoLimit, demoWindow = 5, "300ms"

// demonstration is what one run reported about each algorithm, the exact log last.
type demonstration struct {
	out    string
	series [4]demoSeries
}

type demoSeries struct {
	name                                      string
	most, offered, admitted, refused, wrongly int
}

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
	if !strings.Contains(d.out, " on "+store+".") {
		t.Error("the store is not named")
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := svgText(t, svg)
	wants, above := []string{"on " + store}, 0
	for i, name := range []string{
		"Fixed window", "Sliding window counter", "Token bucket", "Exact log",
	} {
		s := d.row(t, name)
		d.series[i] = s
		wants = append(wants, s.described())
		if s.most > demoLimit {
			above++
		}
		// All times are the server's own, so this is true however slow the machine is.
		if s.most > 2*demoLimit || s.wrongly > 0 && i != 1 {
			t.Errorf("%s: got %+v, want at most %d in a window and, except for the counter, no "+
				"wrong refusal", name, s, 2*demoLimit)
		}
		if s.offered != d.series[0].offered {
			t.Errorf("%s got %d units, and another algorithm %d",
				name, s.offered, d.series[0].offered)
		}
	}
	if d.exact().most != demoLimit {
		t.Errorf("the exact log admitted %d in a window, want %d", d.exact().most, demoLimit)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q:\n%s", want, text)
		}
	}
	if drawn := bytes.Count(svg, []byte(`class="alert"`)); drawn != above {
		t.Errorf("%d of %d algorithms are drawn above the limit", drawn, above)
	}
	return d
}

func (d *demonstration) exact() demoSeries { return d.series[3] }

// showsAll reports whether the algorithms differ as they can, so whether no burst was too late.
func (d *demonstration) showsAll() bool {
	fixed, counter, bucket := d.series[0], d.series[1], d.series[2]
	return fixed.most == 2*demoLimit && counter.most > demoLimit && bucket.most > demoLimit &&
		counter.wrongly > 0
}

// row returns the figures of the last table, and checks that they agree with each other.
func (d *demonstration) row(t *testing.T, name string) demoSeries {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` +(\d+) +(\S+) +(\d+) +(\d+) +(\d+) +(\d+)$`).
		FindStringSubmatch(d.out)
	if m == nil {
		t.Fatalf("no line of figures of the %s:\n%s", name, d.out)
	}
	var n [7]int
	for _, i := range []int{1, 3, 4, 5, 6} {
		n[i], _ = strconv.Atoi(m[i])
	}
	s := demoSeries{name, n[1], n[3], n[4], n[5], n[6]}
	if s.admitted+s.refused != s.offered || s.most > s.admitted || s.wrongly > s.refused ||
		m[2] != s.quotient() {
		t.Errorf("the figures do not agree: %s", m[0])
	}
	return s
}

func (s demoSeries) quotient() string { return fmt.Sprintf("%.2f", float64(s.most)/demoLimit) }

// described returns what the picture's description says about the algorithm.
func (s demoSeries) described() string {
	return fmt.Sprintf("%s: at most %d units in any window, %s times the limit; %d of %d "+
		"admitted, %d refused wrongly.",
		s.name, s.most, s.quotient(), s.admitted, s.offered, s.wrongly)
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
