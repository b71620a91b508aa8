package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// dated are the times that are read: a date, a time of day, a fraction and a zone.
var dated = regexp.MustCompile(`^(\d{4}-\d\d-\d\d|\d\d/[A-Za-z]{3}/\d{4})[Tt :](\d\d:\d\d:\d\d)` +
	`(?:[.,](\d+))? ?(|[Zz]|UTC|GMT|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)$`)

// FuzzTime compares times with those of package time.
func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"2023-11-14T22:13:20.123456789Z", "2024-02-29 00:00:00+23:59", "2023-02-29T00:00:00Z",
		"10/Oct/2000:13:55:36 -0700", "1700000000.5", "1700000000123", "1.7e9",
		"2023-11-14 22:13:20,123 +0800", "2023-11-14T22:13:20-07", "10/Oct/2000 13:55:36.5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c, warm clock
		warm.read([]byte("2023-11-14T22:13:20Z")) // a remembered date must not matter
		at, ok := c.read([]byte(s))
		if again, same := warm.read([]byte(s)); again != at || same != ok {
			t.Errorf("%q is another time after a date", s)
		}
		var want time.Time
		parts := dated.FindStringSubmatch(s)
		wantOK := parts != nil && !strings.HasSuffix(s, " ")
		if wantOK {
			want, wantOK = withPackageTime(parts[1:])
		}
		compareTime(t, s, at, ok, want, wantOK)

		if at, ok := unixTime([]byte(s)); ok && (at < 0 || at >= maxInstant) {
			t.Errorf("%q is %d", s, at)
		}
	})
}

// withPackageTime reads a date, a time of day, a fraction and a zone.
func withPackageTime(parts []string) (time.Time, bool) {
	layout, zone := time.DateOnly, parts[3]
	if parts[0][2] == '/' {
		layout = accessDate
	}
	switch digits := strings.ReplaceAll(zone, ":", ""); {
	case len(digits) == 3 && digits != "UTC" && digits != "GMT":
		zone = digits + "00"
	case len(digits) == 5:
		zone = digits
	default:
		zone = "+0000"
	}
	want, err := time.Parse(layout+"T15:04:05.999999999-0700",
		parts[0]+"T"+parts[1]+"."+(parts[2] + "0")[:min(len(parts[2])+1, 9)]+zone)
	return want, err == nil
}

func compareTime(t *testing.T, s string, at int64, ok bool, want time.Time, wantOK bool) {
	t.Helper()
	switch micros := want.UnixMicro(); {
	case ok && (!wantOK || at != micros):
		t.Errorf("%q is %d, not %d", s, at, micros)
	case !ok && wantOK && micros >= 0 && micros < maxInstant:
		t.Errorf("%q is not read; it is %v", s, want)
	}
}

// FuzzJSONLine compares the scan with the decoder of encoding/json, on lines that are JSON.
func FuzzJSONLine(f *testing.F) {
	for _, s := range []string{
		`{"time":1,"key":"a","n":2}`, `{"a":{"key":"b","time":"x"},"key":[1]}`,
		`{"key":"\u0061","k\u0065y":null}`, `{"a.b":1,"a":{"b":{"c":"d"}}}`, ` {"x":"\\\"}"} `,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n") {
			return
		}
		paths := jsonPaths{"key", "a.b", "a.b.c"}
		p := jsonParser{paths: paths, addresses: newAddresses(nil)}
		var a arrival
		_ = p.parse([]byte(line), &a) // does not panic, whatever the line
		if !json.Valid([]byte(line)) || !utf8.ValidString(line) ||
			!strings.HasPrefix(strings.TrimSpace(line), "{") {
			return
		}
		for i, path := range paths {
			got, err := jsonText(p.found[i], errNoKey, errBadKey)
			want, wantErr := textAt(t, line, path)
			if string(got) != want || !errors.Is(err, wantErr) {
				t.Errorf("%s in %s is %q, %v; not %q, %v", path, line, got, err, want, wantErr)
			}
		}
	})
}

// textAt returns the text of the last value at a path.
func textAt(t *testing.T, line, path string) (text string, err error) {
	t.Helper()
	var value json.RawMessage
	collect(t, json.NewDecoder(strings.NewReader(line)), path, &value)
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0 || string(value) == "null":
		return "", errNoKey
	case value[0] == '{' || value[0] == '[':
		return "", errBadKey
	case value[0] != '"':
		return string(value), nil
	}
	if err := json.Unmarshal(value, &text); err != nil {
		t.Fatal(err)
	}
	return text, nil
}

func collect(t *testing.T, d *json.Decoder, path string, found *json.RawMessage) {
	t.Helper()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if name == path {
			*found = value
		} else if rest, ok := strings.CutPrefix(path, name.(string)+"."); ok && rest != "" {
			collect(t, json.NewDecoder(bytes.NewReader(value)), rest, found)
		}
	}
}

func FuzzAccessLine(f *testing.F) {
	f.Add(commonLine)
	f.Add(combinedLine)
	f.Add(strings.Replace(combinedLine, "[en]", `\"[en]\\`, 1))
	f.Add(strings.Replace(combinedLine, "127", "<1>1 a b c d e f g,[2001:db8::1]:1, 127", 1))
	f.Add(combinedLine + ` "192.0.2.1, 2001:db8::1"`)
	f.Fuzz(func(t *testing.T, line string) {
		_ = formatOf([]byte(line))
		for _, key := range fieldNames {
			var a arrival
			addresses := newAddresses(nil)
			if newAccessParser(key, "bytes", addresses).parse([]byte(line), &a) != nil {
				continue
			}
			_, isAddress := addresses.key(a.key)
			if network, _, ok := strings.Cut(string(a.key), "/"); ok && !isAddress {
				_, isAddress = addresses.key([]byte(network))
			}
			if a.at < 0 || a.at >= maxInstant || a.units < 0 || len(a.key) == 0 ||
				!isAddress && !strings.Contains(line, string(a.key)) {
				t.Errorf("%q: %+v", line, a)
			}
		}
	})
}
