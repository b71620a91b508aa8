package replay

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// sample replays the log in testdata.
func sample(t *testing.T, proposals []Proposal) *Report {
	t.Helper()
	log, err := os.Open("testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	report, err := runOne(t.Context(), log, Options{Proposals: proposals})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

var tenAMinute = driver.Limit{Max: 10, Window: time.Minute}

// TestText compares the report of the sample with one that was checked by hand.
func TestText(t *testing.T) {
	proposals := append(exactly(tenAMinute), Proposal{"fixed", fixed{tenAMinute}})
	var got strings.Builder
	if err := sample(t, proposals).WriteText(&got); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s", &got)
	}
}

func TestSVG(t *testing.T) {
	limit := tenAMinute
	limit.Name = "a<b&c"
	var svg strings.Builder
	if err := sample(t, exactly(limit, tenAMinute)).WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	checkXML(t, svg.String())
	for _, want := range []string{"prefers-color-scheme: dark",
		`y="-14" text-anchor="start">a&lt;b&amp;c=10/1m, log: ` +
			`5 of 1,000 requests refused (0.5 %), of 1 key</text>`,
		`y="-14" text-anchor="start">10/1m, log: ` +
			`5 of 1,000 requests refused (0.5 %), of 1 key</text>`} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &svg)
		}
	}
	if n := strings.Count(svg.String(), `<path class="alert"`); n != 2 {
		t.Errorf("%d proposals show refusals", n)
	}
}

// TestArea draws bars, one of which is smaller than a pixel and one of which is the last.
func TestArea(t *testing.T) {
	const want = "M0 96H88V95H176V96H440V0H528V48H704V96Z"
	if got := area([]int64{0, 1, 0, 0, 0, 1000, 500, 500}, 1000); got != want {
		t.Errorf("got %s", got)
	}
}

func TestBars(t *testing.T) {
	counts := make([]int64, 32)
	copy(counts, []int64{1, 500, 750, 1000})
	for row, want := range map[int]string{1: "▁▁██████", 2: "    ▄▄██"} {
		if got := bars(counts, 1000, row, 2); strings.TrimRight(got, " ") != want {
			t.Errorf("row %d: %q", row, got)
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(sample(t, exactly(tenAMinute)))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Input     struct{ Requests, Keys int }
		Proposals []struct {
			Limit         string
			Refused       int
			First         time.Time  `json:"first_refusal"`
			Worst         []WorstKey `json:"worst_keys"`
			LongestStreak Stretch    `json:"longest_stretch"`
		}
		OverTime struct {
			Interval int64 `json:"interval_ns"`
			Refused  [][]int
		} `json:"over_time"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Proposals[0]
	sum := 0
	for _, n := range got.OverTime.Refused[0] {
		sum += n
	}
	if got.Input.Requests != 1000 || p.Limit != "10/1m0s" || p.Refused != 5 || sum != 5 ||
		!reflect.DeepEqual(p.Worst, []WorstKey{{"198.18.0.0", 5, 89}}) ||
		p.First.IsZero() || p.LongestStreak.Refused != 2 || got.OverTime.Interval != 5e9 {
		t.Errorf("%s", text)
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{grouped(0), "0"}, {grouped(999), "999"}, {grouped(1000), "1,000"},
		{grouped(1234567), "1,234,567"},
		{counted(1, "key"), "1 key"}, {counted(0, "key"), "0 keys"},
		{percent(0, 0), "0.0 %"}, {percent(1, 10_000), "<0.1 %"}, {percent(1, 3), "33.3 %"},
		{percent(9999, 10_000), ">99.9 %"}, {percent(10, 10), "100.0 %"},
		{short(time.Minute), "1m"}, {short(time.Hour), "1h"}, {short(90 * time.Minute), "1h30m"},
		{short(10 * time.Second), "10s"}, {short(10 * time.Minute), "10m"}, {short(0), "0s"},
		{limitText(driver.PerHour("a/b", 7)), "a/b=7/1h"},
		{shown("user 7"), "user 7"}, {shown("\x1b[2J"), `"\x1b[2J"`}, {shown(`a"b`), `"a\"b"`},
		{shown("äöü"), "äöü"}, {shown("\xff"), `"\xff"`},
		{shown(strings.Repeat("ä", 49)), strings.Repeat("ä", 47) + "…"},
		{shown(strings.Repeat("ä", 48)), strings.Repeat("ä", 48)},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func checkXML(t *testing.T, document string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader([]byte(document)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
	}
}
