package headers_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

func TestFormatText(t *testing.T) {
	for f, name := range []string{"draft-11", "draft-06", "x-delta", "x-epoch", "none"} {
		format := headers.Format(f)
		text, err := format.MarshalText()
		if err != nil || string(text) != name || format.String() != name {
			t.Errorf("format %d is %q, %q, %v; want %q", f, text, format, err, name)
		}
		var back headers.Format
		if err := back.UnmarshalText(text); err != nil || back != format {
			t.Errorf("%q is read as %v, %v", text, back, err)
		}
	}
	if _, err := headers.Format(99).MarshalText(); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("format 99: %v", err)
	}
	if got := headers.Format(99).String(); got != "format(99)" {
		t.Error(got)
	}
	var f headers.Format
	if err := f.UnmarshalText([]byte("draft-99")); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("draft-99: %v", err)
	}
}

// TestExpose: Expose names the fields that Write writes, and Retry-After.
func TestExpose(t *testing.T) {
	for f := headers.Draft11; f <= headers.None; f++ {
		h := http.Header{}
		headers.Expose(h, f)
		names := strings.Split(h.Get("Access-Control-Expose-Headers"), ", ")
		for i := range names {
			names[i] = http.CanonicalHeaderKey(names[i])
		}
		written := http.Header{"Retry-After": nil}
		headers.Write(written, f, minute(admitted))
		var want []string
		for name := range written {
			want = append(want, name)
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%v exposes %q, want %q", f, names, want)
		}
	}
	h := http.Header{}
	headers.Expose(h, 99)
	if len(h) != 0 {
		t.Errorf("an unknown format exposes %v", h)
	}
}
