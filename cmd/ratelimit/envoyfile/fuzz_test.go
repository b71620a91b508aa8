package envoyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// Whatever a file has, Read returns limits that compile, or problems with positions in the file.
func FuzzRead(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte("domain: d\ndescriptors: &a [{key: k, <<: {value: v}, descriptors: *a}]"))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, metadata: {a: [1, 2.5, ~, !!binary aa]}}]"))
	f.Add([]byte("%YAML 1.1\n---\ndomain: !!str 1\n...\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Read([]File{{"f", text}}, Options{})
		if err == nil {
			checkDomains(t, d)
			return
		}
		var problems rules.Problems
		if !errors.As(err, &problems) || d != nil {
			t.Fatalf("the error is %v, of type %T", err, err)
		}
		lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) +
			bytes.Count(text, []byte("\u0085")) + bytes.Count(text, []byte("\u2028")) +
			bytes.Count(text, []byte("\u2029"))
		for _, p := range problems {
			if p.At.File != "f" || p.At.Line < 1 || p.At.Line > lines+2 || p.At.Column < 1 ||
				p.Text == "" || len(p.Text) > 1000 {
				t.Errorf("a problem is %+v", p)
			}
		}
	})
}

func checkDomains(t *testing.T, d *Domains) {
	if _, err := rules.Compile(d.Limits(), d); err != nil {
		t.Fatalf("the limits do not compile: %v", err)
	}
	for _, l := range d.Limits() {
		if _, err := json.Marshal(l.Metadata); err != nil {
			t.Errorf("metadata: %v", err)
		}
	}
}
