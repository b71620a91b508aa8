package rules

import (
	"os"
	"strings"
	"testing"
)

// FuzzRead reads any bytes as a main file and as an included one.
func FuzzRead(f *testing.F) {
	real, err := os.ReadFile("testdata/limits.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(real)
	f.Add([]byte("include: [a/*.yaml]\ninstances: 3\npassword_file: ${HOME}/x\n"))
	f.Add([]byte("except:\n- {limit: requests, when: {tenant: b, plan: \"p*\"}, max: 5/m}\n"))
	f.Add([]byte("limits: [{name: a, max: 1/m, when: {client: [10.0.0.0/8, ::/0], a: [b, c*]}, " +
		"except: [{when: {b: {file: limits.txt}}, max: 1/m, until: 2026-12-04T18:00:00Z}]}]"))
	f.Add([]byte("limits: &a [*a, {<<: *a, ? [x] : y, !!str z: 1}]\n---\n..."))
	f.Add([]byte("limits:\n\t- \xff"))
	f.Add([]byte("limits: [{name: a, max: 1/m, when: {a: b*}, by: {entry: a, c: 0}, except: [{" +
		"when: {a: \"*\"}, max: unlimited}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newReader("main.yaml")
		r.main(data)
		r.included(r.file("included.yaml"), data)
		r.included(r.file("real.yaml"), real)
		out, err := r.finish()
		if err != nil {
			for _, p := range err.(Problems) {
				if p.At.File == "" || p.At.Line < 1 || p.At.Column < 1 || p.Text == "" ||
					strings.ContainsAny(p.Text, "\n\r") {
					t.Errorf("a problem has no position, or no text of one line: %+v", p)
				}
			}
			return
		}
		for _, l := range out.Set.Limits() {
			var d Descriptor
			empty := false
			for _, c := range l.When {
				empty = empty || c.Among != nil && c.Among.size() == 0
				for one := range c.each() {
					d = append(d, Entry{Name: c.Entry, Value: one.Pattern})
					break
				}
			}
			for _, name := range l.Key {
				d = append(d, Entry{Name: name, Value: "x"})
			}
			found := false
			for _, m := range out.Set.Match(nil, "", d) {
				found = found || m.Limit == l
			}
			if !found && !empty {
				t.Errorf("%+v does not apply to %v", l, d)
			}
		}
	})
}
