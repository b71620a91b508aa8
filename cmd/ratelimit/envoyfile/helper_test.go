package envoyfile

import (
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// read reads files that are right, and compiles their limits.
func read(t testing.TB, opts Options, texts ...string) *Domains {
	t.Helper()
	var files []File
	for i, text := range texts {
		files = append(files, File{string(rune('a'+i)) + ".yaml", []byte(text)})
	}
	d, err := Read(files, opts)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	if _, err := rules.Compile(d.Limits(), d); err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return d
}

// parse makes a descriptor of "key=value,key=value". Without a value it is empty.
func parse(s string) rules.Descriptor {
	var d rules.Descriptor
	for text := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(text, "=")
		d = append(d, rules.Entry{Name: name, Value: value})
	}
	return d
}

// found returns the name of the limit of a descriptor, or "-".
func found(d *Domains, domain, descriptor string) string {
	if l, _, ok := d.Find(domain, parse(descriptor)); ok {
		return l.Name
	}
	return "-"
}
