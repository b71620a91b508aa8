package replay

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// access returns a template of a line in the combined format.
func access(client string) string {
	return client + ` - - [25/Nov/2026:12:00:0{s} +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8.5"`
}

// twoClients are the clients of five requests, one each second.
var twoClients = []string{"192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1", "192.0.2.2"}

// readableLogs have five lines that differ in {ip}, the client, and {s}, the second.
var readableLogs = []struct {
	name    string
	line    string
	options Options
	ips     []string  // nil for twoClients
	keys    [2]string // of the first and the second; empty for those of twoClients
}{
	{name: "combined", line: access("{ip}")},
	{name: "common", line: `{ip} - frank [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.0" 200 2326`},
	{name: "another zone",
		line: `{ip} - - [25/Nov/2026:20:00:0{s} +0800] "GET / HTTP/1.0" 200 2326`},
	{name: "nginx with ISO 8601",
		line: `{ip} - - [2026-11-25T13:00:0{s}+01:00] "GET / HTTP/1.0" 200 2326 "-" "-"`},
	{name: "milliseconds",
		line: `{ip} - - [25/Nov/2026:12:00:0{s}.000 +0000] "GET / HTTP/1.0" 200 2326 "-" "-"`},
	{name: "docker logs -t", line: "2026-11-25T12:00:07.123456789Z " + access("{ip}")},
	{name: "kubectl logs --timestamps", line: "2026-11-25T12:00:07.123456789+01:00 " +
		access("{ip}")},
	{name: "kubectl logs --prefix", line: "[pod/web-5d9c/nginx] " + access("{ip}")},
	{name: "kubectl logs --prefix --timestamps",
		line: "[pod/web-5d9c/nginx] 2026-11-25T12:00:07.1Z " + access("{ip}")},
	{name: "docker compose", line: "web-1  | " + access("{ip}")},
	{name: "docker compose -t", line: "web-1  | 2026-11-25T12:00:07.1Z " + access("{ip}")},
	{name: "docker compose in colour", line: "\x1b[36mweb-1  | \x1b[0m" + access("{ip}") +
		"\x1b[0m"},
	{name: "docker service logs", line: "web.1.q2z8@node-1    | " + access("{ip}")},
	{name: "stern", line: "\x1b[38;5;2mweb-5d9c\x1b[0m \x1b[38;5;2mnginx\x1b[0m " + access("{ip}")},
	{name: "CRI", line: "2026-11-25T12:00:07.123456789Z stdout F " + access("{ip}")},
	{name: "syslog of RFC 3164", line: "Nov  5 12:00:00 host nginx[812]: " + access("{ip}")},
	{name: "syslog with a priority", line: "<190>Nov 25 12:00:00 host nginx: " + access("{ip}")},
	{name: "syslog of a host with an address",
		line: "Nov 25 12:00:00 10.0.0.5 nginx: " + access("{ip}")},
	{name: "syslog of RFC 5424",
		line: "<190>1 2026-11-25T12:00:07.1Z host nginx - - - " + access("{ip}")},
	{name: "syslog of RFC 5424 with data", line: `<190>1 2026-11-25T12:00:07.1Z host nginx 812 ` +
		`ID ` +
		`[a@1 b="c"] ` + access("{ip}")},
	{name: "rsyslog", line: "2026-11-25T12:00:07.123456+00:00 host nginx: " + access("{ip}")},
	{name: "journalctl", line: "Nov 25 12:00:00 host nginx[812]: " + access("{ip}")},
	{name: "journalctl -o short-iso", line: "2026-11-25T12:00:07+0000 host nginx[812]: " +
		access("{ip}")},
	{name: "Heroku", line: "2026-11-25T12:00:07.1+00:00 app[web.1]: " + access("{ip}")},
	{name: "vhost_combined", line: "example.com:443 " + access("{ip}")},
	{name: "vhost_combined of an address", line: "198.51.100.9:443 " + access("{ip}")},
	{name: "a virtual host", line: "www.example.com " + access("{ip}")},
	{name: "a missing value first", line: "- " + access("{ip}")},
	{name: "a tab", line: "2026-11-25T12:00:07Z\tnginx\t" + access("{ip}")},
	{name: "ingress-nginx", line: access("{ip}") +
		` 480 0.004 [default-web-80] [] 10.1.0.9:8080 5 0.004 200 0c1f`},
	{name: "Traefik", line: access("{ip}") + ` 12 "web@docker" "http://10.0.0.2:80" 3ms`},
	{name: "HAProxy with option httplog clf",
		line: `{ip} - - [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.1" 200 5 "" "" 51234 123 ` +
			`"web" "app" "s1" 0 0 0 1 1 ---- 1 1 0 0 0 0 0 "" ""`},
	{name: "LiteSpeed", line: `"` + access("{ip}") + `"`},
	{name: "LiteSpeed, common", line: `"{ip} - - [25/Nov/2026:12:00:0{s} +0000] ` +
		`"GET / HTTP/2" 200 10540"`},
	{name: "LiteSpeed, no bytes", line: `"{ip} - - [25/Nov/2026:12:00:0{s} +0000] ` +
		`"GET / HTTP/3" 304 -"`},
	{name: "LiteSpeed, the first mark only", line: `"` + access("{ip}")},
	{name: "LiteSpeed, an empty agent", line: `"{ip} - - [25/Nov/2026:12:00:0{s} +0000] ` +
		`"GET / HTTP/2" 200 5 "-" """`},
	{name: "LiteSpeed with a host", line: `"example.com ` + access("{ip}") + `"`},
	{name: "LiteSpeed with a host behind", line: `"` + access("{ip}") + ` "example.com""`},
	{name: "LiteSpeed, hosts together", line: `["example.com"] ` + access("{ip}")},
	{name: "LiteSpeed, hosts together in marks", line: `["example.com"] "` + access("{ip}") + `"`},
	{name: "LiteSpeed by syslog", line: `Nov 25 12:00:00 host lsws: "` + access("{ip}") + `"`},
	{name: "LiteSpeed, X-Forwarded-For", line: `"203.0.113.9, ` + access("{ip}") + `"`},
	{name: "LiteSpeed, X-Forwarded-For behind", line: `"` + access("10.0.0.1") + ` "{ip}""`,
		options: Options{KeyField: "forwarded"}},
	{name: "LiteSpeed, the agent", line: `"192.0.2.9 - - [25/Nov/2026:12:00:0{s} +0000] ` +
		`"GET / HTTP/2" 200 5 "-" "{ip}""`, options: Options{KeyField: "agent"}},
	{name: "LiteSpeed, IPv6", line: `"` + access("{ip}") + `"`,
		ips: []string{"2001:db8::1", "2001:db8:0:1::1", "2001:DB8::2", "2001:db8::3",
			"2001:db8:0:1::9"}, keys: [2]string{"2001:db8::/64", "2001:db8:0:1::/64"}},
	{name: "a client in quotation marks", line: access(`"{ip}"`)},
	{name: "a list in quotation marks", line: access(`"203.0.113.9, {ip}"`)},
	{name: "no list in quotation marks before a client", line: `"-" ` + access("{ip}")},
	{name: "a list in quotation marks before a client", line: `"203.0.113.9" ` + access("{ip}")},
	{name: "a user in quotation marks",
		line:    `192.0.2.9 - "{ip}" [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.1" 200 5`,
		options: Options{KeyField: "user"}},
	{name: "a user that looks like a client",
		line: `{ip} - x 9.9.9.9 - - [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.0" 200 1`},
	{name: "a user that looks like a time", line: `{ip} - a [01/Jan/2000:00:00:00 +0000] \" [b ` +
		`[25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.0" 200 1`},
	{name: "an identity", line: `{ip} ident frank [25/Nov/2026:12:00:0{s} +0000] "GET / ` +
		`HTTP/1.0" 200 1`},
	{name: "with ports", line: access("{ip}"), ips: []string{"192.0.2.1:80", "192.0.2.2:81",
		"192.0.2.1:82", "192.0.2.1", "192.0.2.2:83"}},
	{name: "mapped", line: access("{ip}"), ips: []string{"::ffff:192.0.2.1", "192.0.2.2",
		"192.0.2.1", "[::ffff:192.0.2.1]:80", "::ffff:c000:202"}},
	{name: "IPv6", line: access("{ip}"), ips: []string{"2001:db8::1", "2001:db8:0:1::1",
		"2001:DB8::2", "[2001:db8::3]:443", "2001:db8:0:1::9"},
		keys: [2]string{"2001:db8::/64", "2001:db8:0:1::/64"}},
	{name: "host names", line: access("{ip}"), ips: []string{"a.example.com", "b.example.com",
		"a.example.com", "a.example.com", "b.example.com"},
		keys: [2]string{"a.example.com", "b.example.com"}},
	{name: "a list first", line: access("203.0.113.9, {ip}")},
	{name: "nginx main", line: access("10.0.0.1") + ` "{ip}"`,
		options: Options{KeyField: "forwarded"}},
	{name: "nginx main with a list", line: "web-1  | " + access("10.0.0.1") +
		` "203.0.113.9, {ip}"`,
		options: Options{KeyField: "forwarded"}},
	{name: "the user", line: "web-1  | " +
		`192.0.2.9 - user {ip} [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.0" 200 1`,
		options: Options{KeyField: "user"}, keys: [2]string{"user 192.0.2.1", "user 192.0.2.2"}},
	{name: "the user on a Unix socket",
		line:    `unix: - {ip} x [25/Nov/2026:12:00:0{s} +0000] "GET / HTTP/1.0" 200 1`,
		options: Options{KeyField: "user"},
		ips:     []string{"ann", "bob", "ann", "ann", "bob"}, keys: [2]string{"ann x", "bob x"}},

	{name: "JSON", line: `{"time":"2026-11-25T12:00:0{s}Z","key":"{ip}"}`},
	{name: "JSON as $time_local", line: `{"time":"25/Nov/2026:12:00:0{s} +0000","key":"{ip}"}`},
	{name: "JSON without a colon in the zone",
		line: `{"time":"2026-11-25T20:00:0{s}+0800","key":"{ip}"}`},
	{name: "JSON with a comma", line: `{"time":"2026-11-25 12:00:0{s},000","key":"{ip}"}`},
	{name: "JSON without a zone", line: `{"time":"2026-11-25T12:00:0{s}","key":"{ip}"}`},
	{name: "JSON in UTC by name", line: `{"time":"2026-11-25 12:00:0{s} UTC","key":"{ip}"}`},
	{name: "JSON in seconds", line: `{"time":179560800{s},"key":"{ip}"}`},
	{name: "JSON in seconds as text", line: `{"time":"179560800{s}.000","key":"{ip}"}`},
	{name: "JSON in milliseconds", line: `{"time":179560800{s}000,"key":"{ip}"}`},
	{name: "JSON in microseconds", line: `{"time":"179560800{s}000000","key":"{ip}"}`},
	{name: "JSON in nanoseconds", line: `{"time":179560800{s}000000000,"key":"{ip}"}`},
	{name: "JSON of docker compose", line: "web-1  | " + `{"time":179560800{s},"key":"{ip}"}`},
	{name: "JSON of docker logs -t",
		line: "2026-11-25T12:00:07.1Z " + `{"time":179560800{s},"key":"{ip}"}`},
	{name: "JSON of syslog",
		line: "Nov 25 12:00:00 host nginx: " + `{"time":179560800{s},"key":"{ip}"}`},
	{name: "Caddy", line: `{"level":"info","ts":179560800{s}.0,"logger":"http.log.access",` +
		`"request":{"remote_ip":"{ip}","remote_port":"5123",` +
		`"headers":{"User-Agent":["curl"]}},"status":200}`,
		options: Options{KeyField: "request.remote_ip", TimeField: "ts"}},
	{name: "Caddy by a header",
		line:    `{"ts":179560800{s}.0,"request":{"headers":{"X-Forwarded-For":["{ip}"]}}}`,
		options: Options{KeyField: "request.headers.X-Forwarded-For", TimeField: "ts"}},
	{name: "Caddy by a header of two values",
		line: `{"ts":179560800{s}.0,"request":{"headers":` +
			`{"X-Forwarded-For":["203.0.113.9","{ip}"]}}}`,
		options: Options{KeyField: "request.headers.X-Forwarded-For", TimeField: "ts"}},
	{name: "Traefik JSON", line: `{"ClientAddr":"{ip}:4{s}12","ClientHost":"{ip}",` +
		`"StartUTC":"2026-11-25T12:00:0{s}.000000001Z","level":"info"}`,
		options: Options{KeyField: "ClientAddr", TimeField: "StartUTC"}},
	{name: "nginx JSON", line: `{"time_local":"25/Nov/2026:12:00:0{s} ` +
		`+0000","remote_addr":"{ip}","request_time":"0.004"}`,
		options: Options{KeyField: "remote_addr", TimeField: "time_local"}},
	{name: "Envoy JSON", line: `{"start_time":"2026-11-25T12:00:0{s}.000Z",` +
		`"downstream_remote_address":"{ip}:80"}`,
		options: Options{KeyField: "downstream_remote_address", TimeField: "start_time"}},
}

// fiveLines returns the lines of a template.
func fiveLines(line string, ips []string) string {
	var log strings.Builder
	for i, ip := range ips {
		log.WriteString(strings.NewReplacer("{ip}", ip, "{s}", strconv.Itoa(i)).Replace(line))
	}
	return log.String()
}

// TestReadableLogs replays logs in documented formats. Their first client has three requests and
// the second two.
func TestReadableLogs(t *testing.T) {
	start := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	for _, tt := range readableLogs {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ips == nil {
				tt.ips = twoClients
			}
			if tt.keys[0] == "" {
				tt.keys = [2]string{"192.0.2.1", "192.0.2.2"}
			}
			log := fiveLines(tt.line+"\n", tt.ips)
			tt.options.Proposals = exactly(driver.Limit{Max: 1, Window: 2500 * time.Millisecond},
				driver.PerHour("", 1))
			report, err := runOne(t.Context(), strings.NewReader(log), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			in, short, hour := report.Input, report.Proposals[0], report.Proposals[1]
			if in.Requests != 5 || in.Keys != 2 || in.Late != 0 || !in.First.Equal(start) ||
				!in.Last.Equal(start.Add(4*time.Second)) {
				t.Errorf("read %+v", in)
			}
			want := []WorstKey{{tt.keys[0], 2, 3}, {tt.keys[1], 1, 2}}
			if short.Refused != 1 || hour.Refused != 3 ||
				fmt.Sprint(hour.WorstKeys) != fmt.Sprint(want) {
				t.Errorf("refused %d and %d, of %+v", short.Refused, hour.Refused, hour.WorstKeys)
			}
		})
	}
}
