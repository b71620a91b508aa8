package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/driver"
)

// Lines of the documentation of Apache httpd 2.4 and of nginx's default formats.
const (
	commonLine = `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] ` +
		`"GET /apache_pb.gif HTTP/1.0" 200 2326`
	combinedLine = commonLine +
		` "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`
	frankAt = 971_211_336_000_000 // µs
)

func TestAccessLines(t *testing.T) {
	for _, tt := range []struct {
		name, line, key, units string
		want                   arrival
		err                    error
	}{
		{"common", commonLine, "client", "", arrival{frankAt, 1, []byte("127.0.0.1")}, nil},
		{"combined", combinedLine, "client", "", arrival{frankAt, 1, []byte("127.0.0.1")}, nil},
		{"user", commonLine, "user", "", arrival{frankAt, 1, []byte("frank")}, nil},
		{"method", commonLine, "method", "", arrival{frankAt, 1, []byte("GET")}, nil},
		{"path", commonLine, "path", "", arrival{frankAt, 1, []byte("/apache_pb.gif")}, nil},
		{"status", commonLine, "status", "", arrival{frankAt, 1, []byte("200")}, nil},
		{"units", commonLine, "client", "bytes",
			arrival{frankAt, 2326, []byte("127.0.0.1")}, nil},
		{"referer", combinedLine, "referer", "",
			arrival{frankAt, 1, []byte("http://www.example.com/start.html")}, nil},
		{"agent", combinedLine, "agent", "",
			arrival{frankAt, 1, []byte("Mozilla/4.08 [en] (Win98; I ;Nav)")}, nil},
		{"further fields", combinedLine + ` "10.0.0.1" 0.004`, "agent", "",
			arrival{frankAt, 1, []byte("Mozilla/4.08 [en] (Win98; I ;Nav)")}, nil},
		{"an address of IPv6", strings.Replace(commonLine, "127.0.0.1", "2001:db8::1", 1),
			"client", "", arrival{frankAt, 1, []byte("2001:db8::/64")}, nil},
		{"a user with spaces", strings.Replace(commonLine, "frank", "frank b", 1), "user", "",
			arrival{frankAt, 1, []byte("frank b")}, nil},
		{"a query", strings.Replace(commonLine, ".gif", ".gif?a=1?b=2", 1), "path", "",
			arrival{frankAt, 1, []byte("/apache_pb.gif")}, nil},
		{"escaped marks", strings.Replace(combinedLine, "[en]", `\"[en]\\`, 1), "agent", "",
			arrival{frankAt, 1, []byte(`Mozilla/4.08 \"[en]\\ (Win98; I ;Nav)`)}, nil},
		{"a request that is not of HTTP",
			strings.Replace(commonLine, "GET /apache_pb.gif HTTP/1.0", `\x16\x03`, 1), "client",
			"", arrival{frankAt, 1, []byte("127.0.0.1")}, nil},
		{"an empty request",
			strings.Replace(commonLine, "GET /apache_pb.gif HTTP/1.0", "", 1), "client", "",
			arrival{frankAt, 1, []byte("127.0.0.1")}, nil},
		{"no bytes", strings.TrimSuffix(commonLine, "2326") + "-", "client", "bytes",
			arrival{frankAt, 0, []byte("127.0.0.1")}, nil},
		{"cut after what is needed", strings.TrimSuffix(combinedLine, `)"`), "client", "",
			arrival{frankAt, 1, []byte("127.0.0.1")}, nil},
		{"cut agent", strings.TrimSuffix(combinedLine, `)"`), "agent", "", arrival{}, errSyntax},
		{"no user", strings.Replace(commonLine, "frank", "-", 1), "user", "", arrival{}, errNoKey},
		{"blank", " \t", "client", "", arrival{}, errBlank},
		{"a word", "127.0.0.1", "client", "", arrival{}, errSyntax},
		{"no time", "127.0.0.1 - - -", "client", "", arrival{}, errSyntax},
		{"no request", commonLine[:48], "client", "", arrival{}, errSyntax},
		{"no end of the request", commonLine[:70], "client", "", arrival{}, errSyntax},
		{"no status", commonLine[:len(commonLine)-len(" 200 2326")], "client", "", arrival{},
			errSyntax},
		{"a status that is no number", strings.Replace(commonLine, " 200 ", " OK ", 1),
			"client", "",
			arrival{}, errSyntax},
		{"the 31st of June", strings.Replace(commonLine, "10/Oct", "31/Jun", 1), "client", "",
			arrival{}, errBadTime},
		{"25 o'clock", strings.Replace(commonLine, ":13:", ":25:", 1), "client", "", arrival{},
			errBadTime},
		{"before 1970", strings.Replace(commonLine, "2000", "1969", 1), "client", "", arrival{},
			errBadTime},
		{"after 2112", strings.Replace(commonLine, "2000", "2113", 1), "client", "", arrival{},
			errBadTime},
		{"too many units", strings.TrimSuffix(commonLine, "2326") + "1099511627777", "client",
			"bytes", arrival{}, errBadUnits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got arrival
			err := newAccessParser(tt.key, tt.units, newAddresses(nil)).parse([]byte(tt.line), &got)
			checkArrival(t, got, err, tt.want, tt.err)
		})
	}
}

func checkArrival(t *testing.T, got arrival, err error, want arrival, wantErr error) {
	t.Helper()
	if !errors.Is(err, wantErr) {
		t.Fatalf("the error is %v, not %v", err, wantErr)
	}
	if err == nil && (got.at != want.at || got.units != want.units ||
		string(got.key) != string(want.key)) {
		t.Errorf("got %d µs, %d units of %q", got.at, got.units, got.key)
	}
}

func TestJSONLines(t *testing.T) {
	const at = 1_700_000_000_123_456
	for _, tt := range []struct {
		name, line, key, units string
		want                   arrival
		err                    error
	}{
		{"plain", `{"time":"2023-11-14T22:13:20.123456Z","key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"spaces", ` { "key" : "a" , "x" : null , "time" : 1700000000.123456 } `, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"milliseconds", `{"time":1700000000123.456,"key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"microseconds", `{"time":1700000000123456,"key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"nanoseconds in a string", `{"time":"1700000000123456789","key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"an exponent", `{"time":1.7e9,"key":"a"}`, "key", "",
			arrival{1_700_000_000_000_000, 1, []byte("a")}, nil},
		{"a zone", `{"time":"2023-11-14 23:13:20.123456789+01:00","key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"a number as key", `{"time":1700000000.123456,"key":42}`, "key", "",
			arrival{at, 1, []byte("42")}, nil},
		{"escapes", `{"time":1700000000.123456,"key":"a\"\u00e9\\"}`, "key", "",
			arrival{at, 1, []byte(`a"é\`)}, nil},
		{"an escaped name", `{"time":1700000000.123456,"k\u0065y":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"a path", `{"request":{"x":[{"ip":"b"}],"ip":"a"},"time":1700000000.123456}`,
			"request.ip", "", arrival{at, 1, []byte("a")}, nil},
		{"a name with a point", `{"client.ip":"a","time":1700000000.123456}`, "client.ip", "",
			arrival{at, 1, []byte("a")}, nil},
		{"units", `{"key":"a","time":1700000000.123456,"usage":{"tokens":523}}`, "key",
			"usage.tokens", arrival{at, 523, []byte("a")}, nil},
		{"units in a string", `{"key":"a","time":1700000000.123456,"n":"3.0"}`, "key", "n",
			arrival{at, 3, []byte("a")}, nil},
		{"units twice", `{"key":"a","time":1700000000.123456,"n":2,"n":3}`, "key", "n",
			arrival{at, 3, []byte("a")}, nil},
		{"blank", "\t", "key", "", arrival{}, errBlank},
		{"not an object", `["a"]`, "key", "", arrival{}, errSyntax},
		{"cut", `{"time":1700000000.123456,"key":"a"`, "key", "", arrival{}, errSyntax},
		{"cut in a string", `{"time":1700000000.123456,"key":"a\"`, "key", "", arrival{},
			errSyntax},
		{"cut in an array", `{"key":"a","x":[{"y":1}`, "key", "", arrival{}, errSyntax},
		{"more than an object", `{"time":1700000000,"key":"a"} {}`, "key", "", arrival{},
			errSyntax},
		{"no colon", `{"time" 1700000000,"key":"a"}`, "key", "", arrival{}, errSyntax},
		{"no value", `{"time":,"key":"a"}`, "key", "", arrival{}, errSyntax},
		{"a comma at the end", `{"time":1700000000,"key":"a",}`, "key", "", arrival{}, errSyntax},
		{"a bare word", `{"time":1700000000,"key":a}`, "key", "", arrival{}, errSyntax},
		{"a wrong escape", `{"time":1700000000,"key":"\x41"}`, "key", "", arrival{}, errSyntax},
		{"no key", `{"time":1700000000}`, "key", "", arrival{}, errNoKey},
		{"null as key", `{"time":1700000000,"key":null}`, "key", "", arrival{}, errNoKey},
		{"an empty key", `{"time":1700000000,"key":""}`, "key", "", arrival{}, errNoKey},
		{"an object as key", `{"time":1700000000,"key":{}}`, "key", "", arrival{}, errBadKey},
		{"no time", `{"key":"a"}`, "key", "", arrival{}, errNoTime},
		{"a time without zone", `{"time":"2023-11-14T22:13:20.123456","key":"a"}`, "key", "",
			arrival{at, 1, []byte("a")}, nil},
		{"a time after 2112", `{"time":4600000000,"key":"a"}`, "key", "", arrival{}, errBadTime},
		{"no units", `{"time":1700000000,"key":"a"}`, "key", "n", arrival{}, errNoUnits},
		{"negative units", `{"time":1700000000,"key":"a","n":-1}`, "key", "n", arrival{},
			errBadUnits},
		{"half a unit", `{"time":1700000000,"key":"a","n":1.5}`, "key", "n", arrival{},
			errBadUnits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got arrival
			err := newJSONParser(tt.key, "time", tt.units, newAddresses(nil)).parse([]byte(tt.line),
				&got)
			checkArrival(t, got, err, tt.want, tt.err)
		})
	}
}

func TestUnixTime(t *testing.T) {
	for text, want := range map[string]int64{
		"0":                   0,
		"1":                   1e6,
		"4503599627":          4503599627e6,
		"4503599628":          -1, // after 2112
		"99999999999":         -1,
		"100000000000":        1e14, // ms, in 1973
		"99999999999999":      -1,
		"100000000000000":     1e14, // µs
		"4503599627370495":    maxInstant - 1,
		"4503599627370496":    -1,
		"99999999999999999":   -1,
		"100000000000000000":  1e14, // ns
		"9223372036854775807": -1,
		"9223372036854775808": -1,
		"1.0000019":           1_000_001,
		"100000000000.0019":   100_000_000_000_001,
		"1.":                  1e6,
		"1.5x":                -1,
		"1.5e1":               15e6,
		"1e400":               -1,
		"-1":                  -1,
		"":                    -1,
	} {
		at, ok := unixTime([]byte(text))
		if !ok {
			at = -1
		}
		if at != want {
			t.Errorf("%s is %d, not %d", text, at, want)
		}
	}
}

func TestFormatOfFirstLine(t *testing.T) {
	for line, want := range map[string]Format{
		"":                                 Combined,
		`{"key":"a"}`:                      JSONLines,
		commonLine:                         Common,
		combinedLine:                       Combined,
		`time,key`:                         "",
		combinedLine[:len(combinedLine)-1]: Common,
	} {
		if got := formatOf([]byte(line)); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	limit := driver.PerMinute("", 10)
	for _, tt := range []struct {
		options Options
		first   string
		want    string
	}{
		{Options{Proposals: []Proposal{}}, "", "no limit"},
		{Options{Format: "xml"}, "", `"xml" is not a format`},
		{Options{Format: Common, KeyField: "agent"}, "", `no field "agent"`},
		{Options{Format: Combined, KeyField: "ip"}, "", `no field "ip"`},
		{Options{Format: Combined, UnitsField: "tokens"}, "", `no field "tokens"`},
		{Options{Format: Combined, TimeField: "ts"}, "", "needs no time field"},
		{Options{KeyField: "agent"}, commonLine, `no field "agent"`},
		{Options{}, "time,key", "the first lines are neither"},
	} {
		if tt.options.Proposals == nil {
			tt.options.Proposals = exactly(limit)
		}
		report, err := runOne(t.Context(), strings.NewReader(tt.first), tt.options)
		if report != nil || !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.options, err)
		}
	}
	_, err := runOne(t.Context(), strings.NewReader(""),
		Options{Proposals: exactly(driver.Limit{Max: 1})})
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the error of a limit without a window is %v", err)
	}
}
