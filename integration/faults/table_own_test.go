package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
)

// TestFaultTable holds that the table has a line for each fault and client, no empty cell, and
// stands between its marks.
func TestFaultTable(t *testing.T) {
	var tb table[faultRow]
	for _, lib := range clients.Libraries {
		tb.add(faultRow{fault: "fire", client: lib.Name, image: "a", got: got{1, 2, 3},
			slowest: 1234 * time.Microsecond, admitted: 5, unknown: 3, recorded: 7})
		tb.add(faultRow{
			fault: "fire", client: lib.Name, image: "b", got: got{0, 1, 0},
			slowest: 1234 * time.Millisecond, admitted: 5, recorded: 2, forgets: "heat",
			normal: 20 * time.Millisecond, election: 12 * time.Second,
		})
	}
	text, err := tb.markdown([]string{"fire"}, []string{"a", "b"}, faultColumns)
	if err != nil {
		t.Fatal(err)
	}
	const want = "| fire | go-redis | 1 / 0 | 2 / 1 | 3 / 0 | 1 ms / 1.2 s | all admitted, 2 of 3 unknown / −3: heat | at once / 20 ms (elected after 12 s) |\n"
	if !strings.Contains(text, want) || strings.Count(text, "\n") != 4+len(clients.Libraries) {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if _, err := tb.markdown([]string{"fire", "flood"}, []string{"a", "b"},
		faultColumns); err == nil || !strings.Contains(err.Error(), "flood, rueidis, b") {
		t.Errorf("%v for a table with empty cells", err)
	}
}

func TestFaultTablePlace(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := writeBetween(page, "x", "new\n"); err == nil {
		t.Error("written to a page that is not there")
	}
	const begin, end = "<!-- x: written by make faults -->\n", "<!-- end of x -->\n"
	for _, tt := range []struct{ before, after string }{
		{"a\n" + begin + "old\n" + end + "b\n", "a\n" + begin + "\nnew\n\n" + end + "b\n"},
		{"a\n" + begin + "old\n", ""},
	} {
		if err := os.WriteFile(page, []byte(tt.before), 0o644); err != nil {
			t.Fatal(err)
		}
		err := writeBetween(page, "x", "new\n")
		got, _ := os.ReadFile(page)
		if tt.after == "" {
			if err == nil || string(got) != tt.before {
				t.Errorf("%v, and the page is\n%s", err, got)
			}
		} else if err != nil || string(got) != tt.after {
			t.Errorf("%v, and the page is\n%s", err, got)
		}
	}
}
