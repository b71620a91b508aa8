package command

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestSetHelp: a flag without a text, and a text without a flag, are errors.
func TestSetHelp(t *testing.T) {
	var noText struct {
		Serve struct{ Planted bool } `cmd:""`
	}
	var noFlag struct {
		Top struct{ URL string } `cmd:""`
	}
	for want, grammar := range map[string]any{
		"serve --planted has no help text": &noText,
		"top has 1 flags and 6":            &noFlag,
	} {
		_, err := kong.New(grammar, kong.PostBuild(setHelp))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
