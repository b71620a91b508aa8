package servers

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteTable(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := WriteTable(page, "x", "make faults", "new\n"); err == nil {
		t.Error("no error for a missing page")
	}
	const begin, end = "<!-- x: written by make faults -->\n", "<!-- end of x -->\n"
	for _, tt := range []struct{ before, after string }{
		{"a\n" + begin + "old\n" + end + "b\n", "a\n" + begin + "\nnew\n\n" + end + "b\n"},
		{"a\n" + begin + "old\n", ""},
	} {
		if err := os.WriteFile(page, []byte(tt.before), 0o644); err != nil {
			t.Fatal(err)
		}
		err := WriteTable(page, "x", "make faults", "new\n")
		got, _ := os.ReadFile(page)
		if tt.after == "" {
			if err == nil || string(got) != tt.before {
				t.Errorf("got error %v, want one and an unchanged page, which is\n%s", err, got)
			}
		} else if err != nil || string(got) != tt.after {
			t.Errorf("got error %v and page\n%s\nwant\n%s", err, got, tt.after)
		}
	}
}
