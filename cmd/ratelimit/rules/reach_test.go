package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// A rate that is reported as one that no request gets is gotten by none.
func TestUnreachableRatesAreNotReached(t *testing.T) {
	reported := 0
	rapid.Check(t, func(t *rapid.T) {
		limits := anyLimits(t)
		s := compile(t, limits, nil)
		for i, l := range limits {
			for j := range l.Except {
				l.Except[j].At.Line = j + 1
			}
			if l.By != nil {
				l.By.At.Line = 1000
			}
			l.At.Line = 2000
			problems := s.unreachable(i)
			for range 5 {
				d := slices.DeleteFunc(anyDescriptor.Draw(t, "descriptor"),
					func(e Entry) bool { return e.readings() != nil })
				for _, m := range s.Match(nil, "", d) {
					if m.Limit == l && slices.ContainsFunc(problems, func(p Problem) bool {
						return reportsRate(p, m)
					}) {
						t.Fatalf("%v has the rate %q of %+v in spite of %v", d, m.Why, l, problems)
					}
				}
			}
			reported += len(problems)
		}
	})
	if reported < 50 {
		t.Errorf("only %d rates were reported", reported)
	}
}

// reportsRate reports whether a problem says that no request has a match.
func reportsRate(p Problem, m Match) bool {
	if strings.Contains(p.Text, "matches every request") {
		return m.Why == "max" || p.At.Line < 1000 && strings.HasPrefix(m.Why, "by ")
	}
	switch p.At.Line {
	case 2000:
		return true
	case 1000:
		return strings.HasPrefix(m.Why, "by ") &&
			strings.HasPrefix(p.Text, strings.TrimPrefix(m.Why, "by ")+" ")
	}
	return m.Rate == m.Limit.Except[p.At.Line-1].Rate
}

func TestSuggest(t *testing.T) {
	known := []string{"name", "when", "key", "max", "algorithm", "on_failure"}
	for name, want := range map[string]string{
		"naem": "name", "Max": "max", "keys": "key", "kye": "key", "algorythm": "algorithm",
		"onfailure": "on_failure",
		"xyz":       "", "": "", strings.Repeat("n", 100): "",
	} {
		got := yamlfile.Suggest(name, known)
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("yamlfile.Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}
