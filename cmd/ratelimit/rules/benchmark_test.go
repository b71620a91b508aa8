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
			l.When = []Condition{equals("tenant", "acme"), starts("path", "/v1/")}
		case i < 20:
			l.When = []Condition{starts("path", "/v1/chat/st"[:i-10])}
		case i%2 == 0:
			l.When = []Condition{equals("tenant", fmt.Sprint("tenant", i))}
		default:
			l.When = []Condition{equals("tenant", "acme"), starts("path", fmt.Sprint("/v1/p", i))}
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
			When: []Condition{equals("tenant", fmt.Sprint("tenant", i))}, Rate: l.Rate})
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

// manyValues writes 10,000 limits, of which 20 apply to a request, with 10,000 networks and 100,000
// tenants in ten files, and returns the path.
func manyValues(b *testing.B) string {
	folder := b.TempDir()
	for i := range 10 {
		var tenants, networks strings.Builder
		for n := range 10_000 {
			fmt.Fprintf(&tenants, "tenant-%d-%d\n", i, n)
		}
		for n := range 1000 {
			fmt.Fprintf(&networks, "10.%d.%d.%d/29\n", i*4+n>>8, n&255, n*8&255)
		}
		for name, text := range map[string]string{
			"tenants": tenants.String(), "networks": networks.String()} {
			path := filepath.Join(folder, fmt.Sprint(name, i, ".txt"))
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	var text strings.Builder
	text.WriteString("limits:\n")
	for i := range 10_000 {
		when := fmt.Sprintf("tenant: {file: tenants%d.txt}, path: /v1/p%d", i%10, i)
		switch {
		case i < 10:
			when = "tenant: {file: tenants7.txt}, path: /v1/*"
		case i < 20:
			when = fmt.Sprintf("client: {file: networks3.txt}, path: %s*", "/v1/chat/stream"[:i-9])
		case i%3 == 0:
			when = fmt.Sprintf("client: {file: networks%d.txt}, path: /v1/p%d*", i%10, i)
		case i%3 == 1:
			when = fmt.Sprintf("client: [192.0.%d.%d/32, 198.51.%d.0/24]", i>>8, i&255, i&255)
		}
		fmt.Fprintf(&text, "- {name: limit%d, when: {%s}, key: [tenant], max: 10/1m}\n", i, when)
	}
	path := filepath.Join(folder, "limits.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

func BenchmarkMatchValues(b *testing.B) {
	f, err := Read(manyValues(b))
	if err != nil {
		b.Fatal(err)
	}
	d := entries("tenant", "tenant-7-777", "path", "/v1/chat/stream", "client", "10.13.0.3")
	var matches []Match
	b.ReportAllocs()
	for b.Loop() {
		matches = f.Set.Match(matches[:0], "", d)
	}
	if len(matches) != 20 {
		b.Fatalf("%d limits apply", len(matches))
	}
}

// BenchmarkReadValues is a load of all files.
func BenchmarkReadValues(b *testing.B) {
	path := manyValues(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(path); err != nil {
			b.Fatal(err)
		}
	}
}
