package algorithms

import (
	"errors"
	"testing"

	"github.com/truewindow/ratelimit/driver"
)

func TestByName(t *testing.T) {
	limit := driver.PerMinute("minute", 7)
	for _, name := range Names() {
		n, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a := n.New(limit)
		if n.Name != name || a.Limit() != limit || a.Validate() != nil {
			t.Errorf("ByName(%q) returned %s with the limit %v, want %v", name, n.Name, a.Limit(),
				limit)
		}
	}
	if _, err := ByName("Log"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("unknown name: got %v, want ErrInvalid", err)
	}
}
