package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// piped is the end of a command that prints a log that can be read.
const piped = " | ratelimit-replay --log - …"

// unsupportedLogs are formats that are not read, by their first line, and commands that convert
// them.
var unsupportedLogs = []struct {
	line    *regexp.Regexp
	name    string
	command string
}{
	{regexp.MustCompile(`^\[\s*(\{|$)`), "a JSON array", `jq -c '.[]' FILE`},
	{regexp.MustCompile(`^\{$`), "JSON over several lines", `jq -c . FILE`},
	{regexp.MustCompile(`^#(Software|Version|Fields|Date|Start-Date):`),
		"the W3C format (IIS, CloudFront)", `awk '/^#Fields:/ { for (i=2; i<=NF; i++) c[$i] = ` +
			`i-1 } ` +
			`!/^#/ { print "{\"key\":\"" $c["c-ip"] "\",\"time\":\"" ` +
			`$c["date"] " " $c["time"] "\"}" }' FILE`},
	{regexp.MustCompile(`^(https?|h2|wss?|grpcs?) \d{4}-\d\d-\d\dT\S+ \S+ \S+:\d+ `),
		"the format of an AWS Application Load Balancer",
		`awk '{ print "{\"key\":\"" $4 "\",\"time\":\"" $2 "\"}" }' FILE`},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+Z \S+ \S+:\d+ (\S+:\d+|-) -?[\d.]+ -?[\d.]+ ` +
		`-?[\d.]+ `),
		"the format of an AWS Classic Load Balancer",
		`awk '{ print "{\"key\":\"" $3 "\",\"time\":\"" $1 "\"}" }' FILE`},
	{regexp.MustCompile(`^\S+ \S+ \[\d\d/\w{3}/\d{4}:[\d:]+ [+-]\d{4}\] \S+ \S+ \S+ \w+\.\w+`),
		"the format of Amazon S3",
		`sed -E 's/^[^[]*\[([^]]*)\] ([^ ]+) .*/{"key":"\2","time":"\1"}/' FILE`},
	{regexp.MustCompile(`^[^"{]*:\d+ \[\d\d/\w{3}/\d{4}:[\d:]+\.\d+\] [^" ]+ [^" ]+ `),
		"HAProxy's own format (option httplog clf writes one that is read)",
		`sed -nE 's/.* ([0-9a-fA-F.:]+):[0-9]+ \[([^]]+)\] .*/{"key":"\1","time":"\2"}/p' FILE`},
	{regexp.MustCompile(`^\[\d{4}-\d\d-\d\dT[^]]+\] "`),
		"Envoy's text format, in which only X-Forwarded-For has the client: field 4 by quotation " +
			"marks, in Istio's format field 6",
		`awk -F'"' '{ split($1, t, /[][]/); print "{\"key\":\"" $4 "\",\"time\":\"" t[2] "\"}" ` +
			`}' FILE`},
}

// containers are JSON lines whose text is a line of the log of interest.
var containers = []struct{ field, other, name, command string }{
	{`"log":"`, `"stream":"std`, "that of Docker's json-file driver", "jq -rj .log FILE"},
	{`"MESSAGE":"`, `"__REALTIME_TIMESTAMP":`, "journald's JSON", "jq -r .MESSAGE FILE"},
}

// unsupported returns what a log is and which command converts it, or "" if nothing is known.
func unsupported(o *Options, begin []byte) string {
	line := firstLine(begin)
	for _, u := range unsupportedLogs {
		if u.line.Match(line[:min(len(line), 4<<10)]) {
			return converted(u.name, u.command)
		}
	}
	for _, c := range containers {
		if o.KeyField == "" && bytes.HasPrefix(line, []byte("{")) &&
			bytes.Contains(line, []byte(c.field)) && bytes.Contains(line, []byte(c.other)) {
			return converted(c.name, c.command)
		}
	}
	return ""
}

func converted(name, command string) string {
	return fmt.Sprintf("the log is %s, which is not read; convert it: %s%s", name, command, piped)
}

// encodings are those that are not read, by the first bytes of a log.
var encodings = []struct{ magic, name, command string }{
	{"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -dc FILE"},
	{"\xfd7zX", "compressed with xz", "xz -dc FILE"},
	{"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dc FILE"},
	{"\x1f\x9d", "compressed with compress", "gzip -dc FILE"},
	{"PK\x03\x04", "a ZIP archive", "unzip -p FILE"},
	{"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
	{"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
}

// encoding returns what a log is that begins with these four bytes, or "" if it may be text.
func encoding(begin []byte) string {
	for _, e := range encodings {
		if bytes.HasPrefix(begin, []byte(e.magic)) {
			return converted(e.name, e.command)
		}
	}
	if len(begin) == 4 && (begin[0] == 0) != (begin[1] == 0) &&
		(begin[0] == 0) == (begin[2] == 0) && (begin[1] == 0) == (begin[3] == 0) {
		order := "LE"
		if begin[0] == 0 {
			order = "BE"
		}
		return converted("UTF-16", "iconv -f UTF-16"+order+" -t UTF-8 FILE")
	}
	return ""
}

// fieldsOf returns the paths of the fields in a line of JSON that are not objects.
func fieldsOf(line []byte) string {
	const most = 30
	var object map[string]any
	if json.Unmarshal(line[objectIn(line):], &object) != nil {
		return ""
	}
	var names []string
	var walk func(prefix string, object map[string]any)
	walk = func(prefix string, object map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if len(names) == most {
				return
			}
			if inner, ok := object[name].(map[string]any); ok {
				walk(prefix+name+".", inner)
				continue
			}
			names = append(names, shown(prefix+name))
		}
	}
	walk("", object)
	return strings.Join(names, ", ")
}

// excerpt returns the beginning of a line, quoted.
func excerpt(line []byte) string {
	return strconv.Quote(string(line[:min(len(line), shownText)]))
}
