package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/clients"
)

// TestFaultTable checks that the table has a line for each fault and client, and no empty cell.
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
	const want = "| fire | go-redis | 1 / 0 | 2 / 1 | 3 / 0 | 1 ms / 1.2 s | " +
		"all admitted, 2 of 3 unknown / −3: heat | at once / 20 ms (elected after 12 s) |\n"
	if !strings.Contains(text, want) || strings.Count(text, "\n") != 4+len(clients.Libraries) {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if _, err := tb.markdown([]string{"fire", "flood"}, []string{"a", "b"},
		faultColumns); err == nil || !strings.Contains(err.Error(), "flood, rueidis, b") {
		t.Errorf("%v for a table with empty cells", err)
	}
}
