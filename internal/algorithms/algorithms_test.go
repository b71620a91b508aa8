package algorithms

import (
	"errors"
	"testing"

	"github.com/truewindow/ratelimit"
)

func TestByName(t *testing.T) {
	limit := ratelimit.PerMinute("minute", 7)
	for _, name := range Names() {
		n, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a := n.New(limit)
		if n.Name != name || a.Limit() != limit || a.Validate() != nil {
			t.Errorf("%s is %s, with the limit %v", name, n.Name, a.Limit())
		}
	}
	if _, err := ByName("Log"); !errors.Is(err, ratelimit.ErrInvalidOptions) {
		t.Errorf("the error of an unknown name is %v", err)
	}
}
