package rules

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCompileReportsEveryProblem(t *testing.T) {
	minute := Rate{Units: 1, Window: time.Minute}
	at := func(line int) Position { return Position{File: "f.yaml", Line: line, Column: 3} }
	limits := []*Limit{
		{Name: "b", Rate: Rate{Units: 1}, At: at(9)},
		{Name: "a", Rate: minute, At: at(1)},
		{Name: "a", Rate: minute, At: at(2)},
		{Rate: minute, At: at(3)},
		{Name: "two words", Rate: minute, At: at(4)},
		{Name: "c", Rate: minute, Algorithm: "lok", At: at(5)},
		{Name: "d", Rate: minute, At: at(6), Except: []Exception{
			{When: []Condition{equals("tenant", "acme")}, Rate: Rate{Units: -1}, At: at(7)}}},
		{Name: "e", Rate: minute, At: at(20), By: &Plans{Entry: "plan", At: at(21),
			Rates: map[string]Rate{"pro": {Units: 1}}}},
		{Name: "f", Rate: minute, Warn: 1.5, OnFailure: "local", At: at(30)},
	}
	_, err := Compile(limits, nil)
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is %v, want Problems", err)
	}
	want := []string{
		`f.yaml:2:3: another limit has the name "a", at f.yaml:1:3`,
		`f.yaml:3:3: the limit has no name`,
		`f.yaml:4:3: Name "two words" has a byte`,
		`f.yaml:5:3: "lok" is not an algorithm; the algorithms are log, bucket`,
		`f.yaml:7:3: except tenant=acme: Max -1 is not`,
		`f.yaml:9:3: max: Window 0s is not`,
		`f.yaml:21:3: by plan=pro: Window 0s is not`,
		`f.yaml:30:3: on_failure "local" of a limit is not closed or open`,
		`f.yaml:30:3: warn is not between 0% and 100%`,
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("got %d problems, want %d", len(lines), len(want))
	}
}
