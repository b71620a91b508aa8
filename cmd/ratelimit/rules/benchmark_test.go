package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manyLimits returns limits of which the first 20 apply to the request of a tenant, and the others
// to other tenants and paths.
func manyLimits(n int) ([]*Limit, Descriptor) {
	perMinute := Rate{Units: 10, Window: time.Minute}
	limits := make([]*Limit, n)
	for i := range limits {
		l := &Limit{Name: fmt.Sprint("limit", i), Key: []string{"tenant", "path"}, Rate: perMinute}
		switch {
		case i < 10:
			l.When = []Condition{{"tenant", "acme", false}, {"path", "/v1/", true}}
		case i < 20:
			l.When = []Condition{{"path", "/v1/chat/st"[:i-10], true}}
		case i%2 == 0:
			l.When = []Condition{{"tenant", fmt.Sprint("tenant", i), false}}
		default:
			l.When = []Condition{{"tenant", "acme", false}, {"path", fmt.Sprint("/v1/p", i), true}}
		}
		limits[i] = l
	}
	return limits, entries("tenant", "acme", "plan", "pro", "path", "/v1/chat/stream")
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{20, 1000, 10_000} {
		b.Run(fmt.Sprintf("limits=%d/apply=20", n), func(b *testing.B) {
			limits, d := manyLimits(n)
			s := compile(b, limits, nil)
			var matches []Match
			b.ReportAllocs()
			for b.Loop() {
				matches = s.Match(matches[:0], "", d)
			}
			if len(matches) != 20 {
				b.Fatalf("%d limits apply", len(matches))
			}
		})
	}
}

// BenchmarkMatchSpelled matches a path with several readings.
func BenchmarkMatchSpelled(b *testing.B) {
	limits, d := manyLimits(10_000)
	s := compile(b, limits, nil)
	for _, path := range []string{"/v1/%63hat/stream", "/v1/chat/stream/..%2fstream", tooMany} {
		b.Run(path, func(b *testing.B) {
			d := append(entries("path", path), d...)
			var matches []Match
			b.ReportAllocs()
			for b.Loop() {
				matches = s.Match(matches[:0], "", d)
			}
		})
	}
}

func BenchmarkMatchExceptions(b *testing.B) {
	l := &Limit{Name: "a", Key: []string{"tenant"}, Rate: Rate{Units: 1, Window: time.Minute}}
	for i := range 10_000 {
		l.Except = append(l.Except, Exception{
			When: []Condition{{"tenant", fmt.Sprint("tenant", i), false}}, Rate: l.Rate})
	}
	s := compile(b, []*Limit{l}, nil)
	d := entries("tenant", "tenant9999")
	var matches []Match
	b.ReportAllocs()
	for b.Loop() {
		matches = s.Match(matches[:0], "", d)
	}
}

func BenchmarkCompile(b *testing.B) {
	limits, _ := manyLimits(10_000)
	for b.Loop() {
		if _, err := Compile(limits, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadExceptions(b *testing.B) {
	var text strings.Builder
	text.WriteString("limits:\n- name: a\n  key: [tenant]\n  max: 1/m\n  except:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "  - {when: {tenant: t%d}, max: %d/m}\n", i, i+1)
	}
	path := filepath.Join(b.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Read(path); err != nil {
			b.Fatal(err)
		}
	}
}
