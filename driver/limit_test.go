package driver_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const day = 24 * time.Hour

func TestLimitConstructors(t *testing.T) {
	for _, tt := range []struct {
		got    driver.Limit
		window time.Duration
	}{
		{driver.PerSecond("login", 7), time.Second},
		{driver.PerMinute("login", 7), time.Minute},
		{driver.PerHour("login", 7), time.Hour},
		{driver.PerDay("login", 7), day},
	} {
		if want := (driver.Limit{Name: "login", Max: 7, Window: tt.window}); tt.got != want {
			t.Errorf("got %+v, want %+v", tt.got, want)
		}
		if err := tt.got.Validate(); err != nil {
			t.Errorf("Validate of %v: %v", tt.got, err)
		}
	}
}

func TestLimitValidate(t *testing.T) {
	name64 := strings.Repeat("n", 64)
	tests := []struct {
		name  string
		limit driver.Limit
		ok    bool
	}{
		{"zero", driver.Limit{}, false},
		{"Max zero", driver.Limit{Max: 0, Window: time.Second}, false},
		{"Max negative", driver.Limit{Max: -1, Window: time.Second}, false},
		{"Max least", driver.Limit{Max: 1, Window: time.Second}, true},
		{"Max most", driver.Limit{Max: driver.MaxUnits, Window: time.Second}, true},
		{"Max beyond", driver.Limit{Max: driver.MaxUnits + 1, Window: time.Second}, false},
		{"Window zero", driver.Limit{Max: 1}, false},
		{"Window negative", driver.Limit{Max: 1, Window: -time.Second}, false},
		{"Window least", driver.Limit{Max: 1, Window: time.Millisecond}, true},
		{"Window below", driver.Limit{Max: 1, Window: time.Millisecond - time.Microsecond},
			false},
		{"Window most", driver.Limit{Max: 1, Window: 366 * day}, true},
		{"Window beyond", driver.Limit{Max: 1, Window: 366*day + time.Microsecond}, false},
		{"Window with microseconds",
			driver.Limit{Max: 1, Window: time.Second + time.Microsecond}, true},
		{"Window with nanoseconds", driver.Limit{Max: 1, Window: time.Second + 1}, false},
		{"Name longest", driver.PerSecond(name64, 1), true},
		{"Name too long", driver.PerSecond(name64+"n", 1), false},
		{"Name printable", driver.PerSecond("!#[]~=/azAZ09", 1), true},
		{"Name space", driver.PerSecond("a b", 1), false},
		{"Name quotation mark", driver.PerSecond(`a"b`, 1), false},
		{"Name backslash", driver.PerSecond(`a\b`, 1), false},
		{"Name control", driver.PerSecond("a\nb", 1), false},
		{"Name NUL", driver.PerSecond("\x00", 1), false},
		{"Name DEL", driver.PerSecond("\x7f", 1), false},
		{"Name not ASCII", driver.PerSecond("é", 1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.limit.Validate()
			if tt.ok && err != nil {
				t.Errorf("Validate: %v", err)
			}
			if !tt.ok {
				wantErr(t, err, driver.ErrInvalid)
			}
		})
	}
}

func TestParseLimit(t *testing.T) {
	tests := []struct {
		in     string
		want   driver.Limit
		string string // of the limit
	}{
		{"10/ms", driver.Limit{Max: 10, Window: time.Millisecond}, "10/1ms"},
		{"10/s", driver.PerSecond("", 10), "10/1s"},
		{"100/m", driver.PerMinute("", 100), "100/1m0s"},
		{"1000/h", driver.PerHour("", 1000), "1000/1h0m0s"},
		{"5000/d", driver.PerDay("", 5000), "5000/24h0m0s"},
		{"10/500ms", driver.Limit{Max: 10, Window: 500 * time.Millisecond}, "10/500ms"},
		{"10/.5s", driver.Limit{Max: 10, Window: 500 * time.Millisecond}, "10/500ms"},
		{"10/1000us", driver.Limit{Max: 10, Window: time.Millisecond}, "10/1ms"},
		{"10/1500µs", driver.Limit{Max: 10, Window: 1500 * time.Microsecond}, "10/1.5ms"},
		{"10/1000000ns", driver.Limit{Max: 10, Window: time.Millisecond}, "10/1ms"},
		{"20/2s", driver.Limit{Max: 20, Window: 2 * time.Second}, "20/2s"},
		{"10/1m", driver.PerMinute("", 10), "10/1m0s"},
		{"10/1m30s", driver.Limit{Max: 10, Window: 90 * time.Second}, "10/1m30s"},
		{"10/7d", driver.Limit{Max: 10, Window: 7 * day}, "10/168h0m0s"},
		{"1/366d", driver.Limit{Max: 1, Window: 366 * day}, "1/8784h0m0s"},
		{"1099511627776/s", driver.PerSecond("", driver.MaxUnits), "1099511627776/1s"},
		{"burst=10/s", driver.PerSecond("burst", 10), "burst=10/1s"},
		{"1s=10/s", driver.PerSecond("1s", 10), "1s=10/1s"},
		{"a/b=10/s", driver.PerSecond("a/b", 10), "a/b=10/1s"},
		{"a=b=10/s", driver.PerSecond("a=b", 10), "a=b=10/1s"},
		{"==10/s", driver.PerSecond("=", 10), "==10/1s"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := driver.ParseLimit(tt.in)
			if err != nil || got != tt.want {
				t.Fatalf("ParseLimit = %+v, %v; want %+v", got, err, tt.want)
			}
			if s := got.String(); s != tt.string {
				t.Errorf("String = %q, want %q", s, tt.string)
			}
			again, err := driver.ParseLimit(got.String())
			if err != nil || again != got {
				t.Errorf("ParseLimit(%q) = %+v, %v; want %+v", got.String(), again, err, got)
			}
		})
	}
}

func TestParseLimitErrors(t *testing.T) {
	for _, in := range []string{
		"", "10", "/", "10/", "/s", "=10/s", "burst=", "burst=10", "ten/s", "1.5/s", "1e3/s",
		" 10/s", "10/s ",
		"0/s", "-1/s", "1099511627777/s", "9223372036854775808/s",
		"10/0s", "10/-1s", "10/-s", "10/1", "10/.", "10/x", "10/1x", "10/1.5d", "10/-7d", "10/0d",
		"10/367d", "10/99999d", "10/1h7d",
		"10/us", "10/999us", "10/1000001ns", "10/8785h", "10/s/s", "10/99999999999h",
		"a b=10/s", `a"b=10/s`, "é=10/s", strings.Repeat("n", 65) + "=10/s",
	} {
		t.Run(in, func(t *testing.T) {
			got, err := driver.ParseLimit(in)
			wantErr(t, err, driver.ErrInvalid)
			if got != (driver.Limit{}) {
				t.Errorf("ParseLimit = %+v with an error, want the zero Limit", got)
			}
		})
	}
}

// FuzzLimitText: a text is a valid limit, which is the same after it is written and read again, or
// an error that changes nothing.
func FuzzLimitText(f *testing.F) {
	for _, unit := range []string{"ms", "s", "m", "h", "d", "us", "µs", "ns"} {
		f.Add("10/" + unit)
		f.Add(fmt.Sprintf("name=10/3%s", unit))
	}
	f.Fuzz(func(t *testing.T, s string) {
		before := driver.Limit{Name: "before", Max: 7, Window: 7}
		l := before
		if err := l.UnmarshalText([]byte(s)); err != nil {
			wantErr(t, err, driver.ErrInvalid)
			if l != before {
				t.Fatalf("UnmarshalText(%q) failed and wrote %+v", s, l)
			}
			return
		}
		text, err := l.MarshalText()
		if err != nil || string(text) != l.String() {
			t.Fatalf("MarshalText of %+v, read from %q: %q, %v", l, s, text, err)
		}
		var again driver.Limit
		if err := again.UnmarshalText(text); err != nil || again != l {
			t.Fatalf("UnmarshalText(%q) = %+v, %v after %+v", text, again, err, l)
		}
	})
}

// TestLimitText: limits can be fields of JSON, keys of a map and flags without further code.
func TestLimitText(t *testing.T) {
	type config struct {
		Login driver.Limit
		Plans map[string][]driver.Limit
	}
	const text = `{"Login":"login=5/1m0s","Plans":{"free":["burst=2/1s","day=100/24h0m0s"]}}`
	want := config{
		driver.PerMinute("login", 5),
		map[string][]driver.Limit{"free": {driver.PerSecond("burst", 2),
			driver.PerDay("day", 100)}},
	}
	var got config
	if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if written, err := json.Marshal(want); err != nil || string(written) != text {
		t.Errorf("written %s, %v; want %s", written, err, text)
	}
	for _, wrong := range []string{`{"Login":"5/m/m"}`, `{"Login":5}`} {
		if err := json.Unmarshal([]byte(wrong), &got); err == nil {
			t.Errorf("%s is read as %+v", wrong, got)
		}
	}
	if _, err := json.Marshal(config{}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the zero Limit is written: %v", err)
	}

	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var limit driver.Limit
	flags.TextVar(&limit, "limit", driver.PerMinute("login", 60), "")
	if limit != driver.PerMinute("login", 60) {
		t.Errorf("the default of a flag is %+v", limit)
	}
	if err := flags.Parse([]string{"-limit", "burst=20/500ms"}); err != nil ||
		limit != (driver.Limit{Name: "burst", Max: 20, Window: time.Second / 2}) {
		t.Errorf("a flag is read as %+v, %v", limit, err)
	}
}
