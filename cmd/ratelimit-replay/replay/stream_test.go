package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// logOf returns so many JSON lines, one each second, and their arrivals.
func logOf(lines int) (log string, as []arrival) {
	var b strings.Builder
	for i := range lines {
		key := strings.Repeat("k", 1+i*7919%300)
		fmt.Fprintf(&b, `{"time":%d,"key":"%s"}`+"\n", 1_700_000_000+i, key)
		as = append(as, arrival{int64(1_700_000_000+i) * 1e6, 1, []byte(key)})
	}
	return b.String(), as
}

var proposals = exactly(driver.PerMinute("", 1), driver.PerHour("", 2))

func compressed(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRunReadsAllLines(t *testing.T) {
	log, as := logOf(10_000) // several blocks
	if len(log) < 4*blockSize {
		t.Fatal("the log is short")
	}
	_, want := replayed(t, proposals, as)
	if want.Proposals[1].Refused == 0 {
		t.Fatal("nothing is refused")
	}
	half := len(log) / 2
	for name, r := range map[string]io.Reader{
		"whole":         strings.NewReader(log),
		"small reads":   iotest.HalfReader(strings.NewReader(log)),
		"data with EOF": iotest.DataErrReader(strings.NewReader(log)),
		"no last end":   strings.NewReader(strings.TrimSuffix(log, "\n")),
		"CRLF":          strings.NewReader(strings.ReplaceAll(log, "\n", "\r\n")),
		"gzip":          strings.NewReader(compressed(t, log)),
		"gzip twice":    strings.NewReader(compressed(t, log[:half]) + compressed(t, log[half:])),
	} {
		got, err := runOne(t.Context(), r, Options{Proposals: proposals})
		if err != nil {
			t.Fatal(name, err)
		}
		if !reflect.DeepEqual(got.Proposals, want.Proposals) || got.Input.Lines != 10_000 ||
			got.Input.Unread != nil {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
	}
}

func TestUnreadLines(t *testing.T) {
	good := `{"time":1700000000,"key":"a"}` + "\n"
	long := `{"time":1700000000,"key":"` + strings.Repeat("x", 3*maxLine) + `"}` + "\n"
	log := good + "\n  \nnot JSON\x1b[2J\n" + good + long + good + strings.Repeat("{}\n", 7) +
		long +
		strings.TrimSuffix(good, "\n")
	progress := new(Progress)
	report, err := runOne(t.Context(), strings.NewReader(log),
		Options{Proposals: proposals, Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	in := report.Input
	if in.Lines != 16 || in.Requests != 4 || in.Keys != 1 || progress.Lines.Load() != 16 {
		t.Errorf("%+v", in)
	}
	if want := []Unread{{errSyntax.Error(), 1}, {errTooLong.Error(), 2},
		{errNoKey.Error(), 7}}; !reflect.DeepEqual(in.Unread, want) {
		t.Errorf("%+v", in.Unread)
	}
	if want := []UnreadLine{{0, 4, errSyntax.Error(), "not JSON\x1b[2J"}, {0, 6, errTooLong.Error(),
		""},
		{0, 8, errNoKey.Error(), "{}"}, {0, 9, errNoKey.Error(), "{}"},
		{0, 10, errNoKey.Error(), "{}"}}; !reflect.DeepEqual(in.Examples, want) {
		t.Errorf("%+v", in.Examples)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"7 lines not read: no key\n",
		`line 4: not in the format of the log: "not JSON\x1b[2J"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &text)
		}
	}
}

func TestEmptyLog(t *testing.T) {
	for _, log := range []string{"", "\n\n"} {
		report, err := runOne(t.Context(), strings.NewReader(log), Options{Proposals: proposals})
		if !errors.Is(err, ErrNothingRead) || report == nil {
			t.Fatal(err)
		}
		var text, svg strings.Builder
		if err := errors.Join(report.WriteText(&text), report.WriteSVG(&svg)); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text.String(), "0 requests of 0 keys") {
			t.Errorf("%q: %s", log, &text)
		}
		checkXML(t, svg.String())
	}
}

// TestReadFails checks that what was read before the error is reported.
func TestReadFails(t *testing.T) {
	log, _ := logOf(3)
	broken := errors.New("broken")
	whole := compressed(t, strings.Repeat(log, 1000))
	for name, tt := range map[string]struct {
		log   io.Reader
		want  error
		lines int64
	}{
		"at the end": {io.MultiReader(strings.NewReader(log), iotest.ErrReader(broken)), broken, 3},
		"cut gzip":   {strings.NewReader(whole[:len(whole)-9]), io.ErrUnexpectedEOF, 3000},
	} {
		report, err := runOne(t.Context(), tt.log, Options{Proposals: proposals})
		if !errors.Is(err, tt.want) || report == nil || report.Input.Lines != tt.lines {
			t.Errorf("%s: %v, %+v", name, err, report)
		}
	}
	if _, err := runOne(t.Context(), iotest.ErrReader(broken),
		Options{Proposals: proposals}); !errors.Is(err, broken) {
		t.Errorf("at once: %v", err)
	}
	if _, err := runOne(t.Context(), strings.NewReader("\x1f\x8bzip"),
		Options{Proposals: proposals}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a header of gzip: %v, want ErrUnexpectedEOF", err)
	}
}

// endless is a log that ends only with its context.
type endless struct {
	line string
	at   int
	stop func()
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left--; e.left == 0 {
		e.stop()
	}
	for i := range p {
		p[i] = e.line[e.at]
		e.at = (e.at + 1) % len(e.line)
	}
	return len(p), nil
}

func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log := &endless{line: `{"time":1700000000,"key":"a"}` + "\n", stop: stop, left: 40}
	report, err := runOne(ctx, log, Options{Proposals: proposals})
	if !errors.Is(err, context.Canceled) || report == nil {
		t.Fatalf("%v, %v", err, report)
	}
	if in := report.Input; in.Requests != in.Lines || in.Requests == 0 {
		t.Errorf("%+v", in)
	}
}

// TestBytesThatAreNotText checks what is removed from lines, and what bounds them.
func TestBytesThatAreNotText(t *testing.T) {
	good := `{"time":1700000000,"key":"a"}`
	bzip2, err := hex.DecodeString("" +
		"425a6839314159265359fe9b1b3900000cd980041010046090222a042a20003143" +
		"4d300056807a87a8f2966b9b0c810704c24eae7d74f8bb9229c28487f4d8d9c8")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		log           string
		lines, unread int64
	}{
		"a byte-order mark":     {"\ufeff" + good, 1, 0},
		"two files with marks":  {"\ufeff" + good + "\n\ufeff" + good, 2, 0},
		"CRLF":                  {good + "\r\n" + good + "\r\n", 2, 0},
		"copytruncate":          {strings.Repeat("\x00", 3*maxLine) + good + "\n" + good, 2, 0},
		"NULs after a cut line": {good + "\n" + good[:9] + "\x00\x00" + good, 2, 0},
		"NULs at the end":       {good + "\x00\x00\n" + good + "\n\x00\x00", 3, 0},
		"colours":               {"\x1b[1;36mweb |\x1b[0m " + good + "\x1b[0m", 1, 0},
		"bzip2":                 {string(bzip2), 1, 0},
		"gzip with a mark":      {compressed(t, "\ufeff"+good), 1, 0},
		"a key of 1 MB": {good + "\n" + strings.Replace(good, "a", strings.Repeat("x",
			1e6), 1), 2, 1},
		"a key of 1 KiB": {strings.Replace(good, "a", strings.Repeat("x", 1024), 1), 1,
			0},
		"lines before the first": {"Attaching to web-1\n" + "web-1  | " + good, 2, 1},
		"NULs and a line too long": {"\x00\x00" + strings.Repeat("x", 2*maxLine) + "\n" + good, 2,
			1},
		"an unfinished colour":      {"\x1b[1;36\n" + good, 2, 1},
		"spaces around":             {"  " + good + "  ", 1, 0},
		"a line of only NULs":       {"\x00\n" + good, 2, 0},
		"a name that is not a mark": {"\xef\xbb" + "\n" + good, 2, 1},
	} {
		report, err := runOne(t.Context(), iotest.HalfReader(strings.NewReader(tt.log)),
			Options{Format: JSONLines, Proposals: proposals})
		if err != nil {
			t.Fatal(name, err)
		}
		in := report.Input
		unread := int64(0)
		for _, u := range in.Unread {
			unread += u.Lines
		}
		if in.Lines != tt.lines || unread != tt.unread || in.Keys != 1 ||
			in.Requests == 0 {
			t.Errorf("%s: %+v", name, in)
		}
	}
}
