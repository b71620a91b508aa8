package terminal

import (
	"os"
	"strings"
	"testing"
)

func TestIs(t *testing.T) {
	device, err := os.Open(os.DevNull) // a character device, as terminals are
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !Is(device) || Is(file) || Is(new(strings.Builder)) {
		t.Error("a device is no terminal, or something else is")
	}
}

func TestEscapes(t *testing.T) {
	for _, tt := range []struct{ s, value, line, lines string }{
		{"", "", "", ""},
		{`é 日本 "a" \b`, `é 日本 "a" \b`, `é 日本 "a" \b`, `é 日本 "a" \b`},
		{"a\x1b[31mb", `"a\x1b[31mb"`, `a\x1b[31mb`, `a\x1b[31mb`},
		{"a\nb\r\tc", `"a\nb\r\tc"`, `a\nb\r\tc`, "a\nb" + `\r\tc`},
		{"\"\x07\"", `"\"\a\""`, `"\a"`, `"\a"`},
		{"\u009b31m\x7f", `"\u009b31m\x7f"`, `\u009b31m\x7f`, `\u009b31m\x7f`},
		{"\x9b31m\xff", `"\x9b31m\xff"`, `\x9b31m\xff`, `\x9b31m\xff`},
		{"a\u202eb\u200b", `"a\u202eb\u200b"`, `a\u202eb\u200b`, `a\u202eb\u200b`},
		{"\ufffd", "\ufffd", "\ufffd", "\ufffd"},
	} {
		got := [...]string{Value(tt.s), Line(tt.s), Lines(tt.s)}
		if want := [...]string{tt.value, tt.line, tt.lines}; got != want {
			t.Errorf("%q: %q, want %q", tt.s, got, want)
		}
	}
}
