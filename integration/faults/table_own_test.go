package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
)

// TestFaultTable checks that the table has a line for each fault, and nothing is missing.
func TestFaultTable(t *testing.T) {
	var tb table[faultRow]
	for i, lib := range clients.Libraries {
		tb.add(faultRow{fault: "fire", client: lib.Name, image: "a", got: got{i, 2, 3},
			slowest: 1234 * time.Microsecond, admitted: 5, unknown: 3, recorded: 7})
		tb.add(faultRow{
			fault: "fire", client: lib.Name, image: "b", got: got{0, 1, 3},
			slowest: 15 * time.Millisecond, admitted: 5, recorded: 5,
			normal: 20 * time.Millisecond,
		})
		tb.add(faultRow{
			fault: "flood", client: lib.Name, image: "a", slowest: 20 * time.Millisecond,
			admitted: 5, recorded: 2 + i, forgets: "water", election: 12 * time.Second,
		})
		tb.add(faultRow{
			fault: "flood", client: lib.Name, image: "b", slowest: 1200 * time.Millisecond,
			admitted: 5, recorded: 5, forgets: "water", election: 12 * time.Second,
		})
	}
	text, err := tb.markdown([]string{"fire", "flood"}, []string{"a", "b"}, faultColumns)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| fire | 0–2 | 1–2 | 3 | 1–15 ms | all, and 6 of 9 unknown | 0–20 ms |\n",
		"| flood | 0 | 0 | 0 | 20 ms–1.2 s | 0–3 lost by water | 0 ms (elected after 12 s) |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nwant\n%s", text, want)
		}
	}
	if _, err := tb.markdown([]string{"fire", "storm"}, []string{"a", "b"},
		faultColumns); err == nil || !strings.Contains(err.Error(), "storm, rueidis, b") {
		t.Errorf("%v for a table with empty cells", err)
	}
}
