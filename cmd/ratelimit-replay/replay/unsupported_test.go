package replay

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/driver"
)

// notReadLogs have five lines each, as those of readableLogs do, after begin.
var notReadLogs = []struct{ name, begin, line, end, want string }{
	{"JSON array", "[\n", `{"time":179560800{s},"key":"{ip}"},`,
		"\n" + `{"time":1795608004,"key":"192.0.2.2"}]`, "a JSON array"},
	{"JSON array in one line", `[{"time":1795608004,"key":"192.0.2.2"}`,
		`,{"time":179560800{s},"key":"{ip}"}`, "]", "a JSON array"},
	{"pretty JSON", "", "{\n  \"time\": 179560800{s},\n  \"key\": \"{ip}\"\n}\n", "",
		"JSON over several lines"},
	{"IIS", "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n" +
		"#Fields: date time s-ip cs-method cs-uri-stem c-ip sc-status\n",
		"2026-11-25 12:00:0{s} 10.0.0.1 GET / {ip} 200\n", "", "W3C"},
	{"CloudFront", "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method\n",
		"2026-11-25\t12:00:0{s}\tFRA2\t182\t{ip}\tGET\n", "", "W3C"},
	{"ALB", "", `https 2026-11-25T12:00:0{s}.186641Z app/my-lb/50dc {ip}:2817 10.0.0.1:80 0.000 ` +
		`0.001 0.000 200 200 34 366 "GET https://www.example.com:443/ HTTP/1.1" "curl" - -` + "\n",
		"", "Application Load Balancer"},
	{"classic ELB", "", `2026-11-25T12:00:0{s}.945958Z my-lb {ip}:2817 10.0.0.1:80 0.000073 ` +
		`0.001048 ` +
		`0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl" - -` + "\n",
		"", "Classic Load Balancer"},
	{"S3", "", `79a59df9 bucket [25/Nov/2026:12:00:0{s} +0000] {ip} 79a59df9 3E57427F ` +
		`REST.GET.OBJECT ` +
		`a.txt "GET /a.txt HTTP/1.1" 200 - 113 - 7 - "-" "S3Console/0.4" -` + "\n", "",
		"Amazon S3"},
	{"HAProxy", "", `Nov 25 12:00:0{s} host haproxy[14389]: {ip}:33317 ` +
		`[25/Nov/2026:12:00:0{s}.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- ` +
		`1/1/1/1/0 ` +
		`0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"` + "\n", "", "option httplog clf"},
	{"Envoy", "", `[2026-11-25T12:00:0{s}.310Z] "POST /api HTTP/1.1" 204 - 154 0 226 100 "{ip}" ` +
		`"nsq2http" "cc21d9b0" "locations" "tcp://10.0.0.1:80"` + "\n", "", "Envoy"},
	{"json-file", "", `{"log":"{ip} - - [25/Nov/2026:12:00:0{s} +0000] \"GET / HTTP/1.1\" 200 ` +
		`5\n",` +
		`"stream":"stdout","time":"2026-11-25T12:00:09Z"}` + "\n", "", "json-file"},
	{"journald", "", `{"__REALTIME_TIMESTAMP":"1","MESSAGE":"{ip} - - [25/Nov/2026:12:00:0{s} ` +
		`+0000] ` +
		`\"GET / HTTP/1.1\" 200 5"}` + "\n", "", "journald"},
}

var conversion = regexp.MustCompile(`convert it: (.*) \| ratelimit-replay --log - …`)

// TestNotReadLogs checks that a log that is not read is named, with a command whose output is read.
func TestNotReadLogs(t *testing.T) {
	for _, tt := range notReadLogs {
		t.Run(tt.name, func(t *testing.T) {
			log := tt.begin + fiveLines(tt.line, twoClients) + tt.end
			o := Options{Proposals: exactly(driver.PerHour("", 1))}
			report, err := runOne(t.Context(), strings.NewReader(log), o)
			if report != nil || !errors.Is(err, driver.ErrInvalid) ||
				!strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%+v, %v", report, err)
			}
			command := conversion.FindStringSubmatch(err.Error())
			if command == nil {
				t.Fatalf("no command in %v", err)
			}
			checkConversion(t, command[1], log, o)
		})
	}
}

func checkConversion(t *testing.T, command, log string, o Options) {
	t.Helper()
	if _, err := exec.LookPath(strings.Fields(command)[0]); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c",
		strings.Replace(command, "FILE", file, 1)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	report, err := runOne(t.Context(), strings.NewReader(string(out)), o)
	if err != nil {
		t.Fatalf("%v of\n%s", err, out)
	}
	in := report.Input
	if in.Keys != 2 || in.Requests < 5 || in.Unread != nil || in.First.Minute() != 0 {
		t.Errorf("%+v of\n%s", in, out)
	}
}

// TestEncodingsThatAreNotRead checks that a log that is not text is named.
func TestEncodingsThatAreNotRead(t *testing.T) {
	for begin, want := range map[string]string{
		"\x28\xb5\x2f\xfd\x04": "zstd -dc FILE", "\xfd7zXZ\x00": "xz -dc FILE",
		"\x04\x22\x4d\x18d": "lz4 -dc FILE", "\x1f\x9d\x90": "gzip -dc FILE",
		"PK\x03\x04\x14": "unzip -p FILE", "\xff\xfe1\x00": "UTF-16 -t UTF-8",
		"\xfe\xff\x001": "UTF-16 -t UTF-8", "1\x00.\x00": "UTF-16LE", "\x001\x00.": "UTF-16BE",
	} {
		report, err := runOne(t.Context(), strings.NewReader(begin), Options{Proposals: proposals})
		if report != nil || !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", begin, err)
		}
	}
}

// TestRefusedLines checks that a line whose client is not certain is rejected.
func TestRefusedLines(t *testing.T) {
	rest := ` [25/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`
	for _, tt := range []struct {
		line, key string
		want      error
	}{
		{"INFO - 192.0.2.1 - -" + rest, "client", errNoAddress},
		{"app.access - 192.0.2.1 - -" + rest, "client", errNoAddress},
		{"app.access - 192.0.2.1 - -" + rest, "user", errNoAddress},
		{"web-1 - -" + rest, "client", errNoAddress},
		{"999.0.2.1 - -" + rest, "client", errNoAddress},
		{"access.log:192.0.2.1 - -" + rest, "client", errNoAddress},
		{"web-1 | a.example.com - -" + rest, "client", errNoAddress},
		{"web-1 | web 192.0.2.1 a b" + rest, "client", errNoClient},
		{"2026-11-25 12:00:00,1 - INFO - 192.0.2.1 - -" + rest, "client", errNoAddress},
		{"a.example.com - x 192.0.2.1 - -" + rest, "client", nil},
		{"unix: - -" + rest, "client", errNoAddress},
		{"- - -" + rest, "client", errNoKey},
		{"192.0.2.1" + rest, "client", errNoClient},
		{"192.0.2.1 - -" + rest, "forwarded", errNoForwarded},
		{"192.0.2.1 - -" + rest + ` "-"`, "forwarded", errNoKey},
		{"192.0.2.1 - -" + rest + ` "192.0.2.1, unknown"`, "forwarded", errNoAddress},
		{"192.0.2.1 - -" + rest + ` 0.4 "192.0.2.1"`, "forwarded", errNoForwarded},
	} {
		var a arrival
		err := newAccessParser(tt.key, "", newAddresses(nil)).parse([]byte(tt.line), &a)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, key %q", tt.line, err, a.key)
		}
	}
	for value, want := range map[string]error{
		`"-"`: errNoKey, `["-"]`: errNoKey, `[]`: errNoKey, `[""]`: errNoKey,
		`["a","b"]`: errBadKey,
		`[1]`:       errBadKey, `[{}]`: errBadKey, `["a"]`: nil, `"a, b"`: nil,
	} {
		var a arrival
		err := newJSONParser("key", "time", "", newAddresses(nil)).parse(
			fmt.Appendf(nil, `{"time":1700000000,"key":%s}`, value), &a)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, key %q", value, err, a.key)
		}
	}
}

// TestNothingRead checks that the error says what the first line has.
func TestNothingRead(t *testing.T) {
	for _, tt := range []struct {
		log, want string
		options   Options
	}{
		{"\n", "the log is empty", Options{}},
		{`{"ts":1,"request":{"ip":"a","x\u001b":1}}`,
			`the first line has: request.ip, "request.x\x1b", ts`, Options{}},
		{`{"time":"yesterday","key":"a"}`, `the time in field time`, Options{}},
		{"{]", `not in the format of the log; the first line is "{]"`, Options{}},
		{"\x1b[2Jx", `"\x1b[2Jx"`, Options{Format: Common}},
	} {
		tt.options.Proposals = proposals
		report, err := runOne(t.Context(), strings.NewReader(tt.log), tt.options)
		if report == nil || !errors.Is(err, ErrNothingRead) || !strings.Contains(err.Error(),
			tt.want) {
			t.Errorf("%q: %v", tt.log, err)
		}
	}
}
