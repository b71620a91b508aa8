package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil: an exception ends at its time, without another load, and what it was before is then
// the rate: another exception, a plan, or max.
func TestUntil(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "raises.yaml", `
except:
- {limit: units, when: {tenant: acme}, max: 5000/1m, until: 2000-01-01T02:00:00+01:00}
- {limit: units, when: {tenant: acme}, max: 4000/1m, until: 2000-01-01T03:00:00+01:00}
- {limit: units, when: {path: /exports*}, max: 9/1m, until: 2000-01-01T02:00:00Z}
`)
	path := write(t, folder, "limits.yaml", `
include: raises.yaml
limits:
- name: units
  key: [tenant]
  max: 1000/1m
  by: {entry: plan, pro: 2000/1m}
  except:
  - {when: {tenant: acme, plan: pro}, max: 3000/1m}
`)
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	acme, pro := entries("tenant", "acme"), entries("tenant", "acme", "plan", "pro")
	exports := entries("tenant", "globex", "plan", "pro", "path", "/exports/..%2fx")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // 2000-01-01T00:00:00Z
		for _, tt := range []struct {
			at                 time.Duration
			acme, pro, exports string
		}{
			{0, "5000", "5000", "9"},
			{time.Hour - 1, "5000", "5000", "9"},
			{time.Hour, "4000", "4000", "9"},
			{2*time.Hour - 1, "4000", "4000", "9"},
			{2 * time.Hour, "1000", "3000", "2000"},
			{1e6 * time.Hour, "1000", "3000", "2000"},
		} {
			time.Sleep(time.Until(began.Add(tt.at)))
			for want, d := range map[string]Descriptor{"acme " + tt.acme: acme,
				"acme " + tt.pro + " ": pro, "globex " + tt.exports: exports} {
				m := f.Set.Match(nil, "", d)
				got := fmt.Sprint(m[0].Key, " ", m[0].Rate.Units)
				if got != strings.TrimSpace(want) {
					t.Errorf("after %v %v has %s, want %s", tt.at, d, got, want)
				}
			}
			m, missing, _ := f.Set.Named("units", "acme", entries("plan", "pro", "path", "/x"))
			if missing != "" || fmt.Sprint(m.Rate.Units) != tt.pro {
				t.Errorf("after %v the named limit has %v, and misses %q", tt.at, m.Rate, missing)
			}
			_, missing, _ = f.Set.Named("units", "globex", entries("plan", "pro"))
			if want := map[bool]string{true: "path"}[tt.at < 2*time.Hour]; missing != want {
				t.Errorf("after %v the entry %q is missing, want %q", tt.at, missing, want)
			}
		}
	})
	var why []string
	for _, v := range f.Set.Variants() {
		why = append(why, v.Why)
		if v.Until.IsZero() == strings.Contains(v.Why, "until") {
			t.Errorf("%s ends at %v", v.Why, v.Until)
		}
	}
	want := []string{"max", "by plan=pro", "except tenant=acme until 2000-01-01T02:00:00+01:00",
		"except tenant=acme until 2000-01-01T03:00:00+01:00",
		"except path=/exports* until 2000-01-01T02:00:00Z", "except tenant=acme, plan=pro"}
	if !slices.Equal(why, want) {
		t.Errorf("the rates are %q, want %q", why, want)
	}
}

// TestReachOfTemporaryRates: a rate that ends hides only what ends no later.
func TestReachOfTemporaryRates(t *testing.T) {
	const early, late = "until: 2030-01-01T00:00:00Z", "until: 2030-01-01T00:00:01Z"
	for _, tt := range []struct{ except, want string }{
		{"{when: {t: a}, max: 2/m, " + early + "}, {when: {t: a}, max: 3/m}", ""},
		{"{when: {t: a}, max: 3/m}, {when: {t: a}, max: 2/m, " + early + "}", ""},
		{"{when: {t: a}, max: 2/m, " + early + "}, {when: {t: a}, max: 3/m, " + late + "}", ""},
		{"{when: {t: a}, max: 2/m, " + late + "}, {when: {t: a}, max: 3/m, " + early + "}",
			"never reached"},
		{"{when: {t: a}, max: 2/m, " + late + "}, {when: {t: a}, max: 3/m, " + late + "}",
			"never reached"},
		{"{when: {t: '*'}, max: 2/m, " + early + "}", ""},
		{"{when: {p: a}, max: 2/m, " + early + "}", ""},
		{"{when: {t: a}, max: 2/m, until: 2030-01-01}", "until is a time with its offset, such " +
			`as 2026-12-04T18:00:00+01:00, not "2030-01-01"`},
		{"{when: {t: a}, max: 2/m, until: 2030-01-01T00:00:00}", "until is a time with its"},
		{"{when: {t: a}, max: 2/m, until: 2030-01-01 00:00:00Z}", "until is a time with its"},
		{"{when: {t: a}, max: 2/m, until: 0001-01-01T00:00:00Z}", "until is a time with its"},
		{"{when: {t: a}, max: 2/m, until: [a]}", "until is one value, not a list"},
	} {
		got := problemsOf(t, "limits: [{name: n, key: [t], max: 1/m, by: {entry: p, a: 7/m}, "+
			"except: ["+tt.except+"]}]\n")
		if tt.want == "" && len(got) > 0 || tt.want != "" &&
			(len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: %q, want %q", tt.except, got, tt.want)
		}
	}
}

// TestIdle: exceptions that are over and files without values are found.
func TestIdle(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	none := Condition{Entry: "tenant", Among: values(nil, "none.txt")}
	acme := []Condition{equals("tenant", "acme")}
	at := func(line int) Position { return Position{File: "f", Line: line} }
	l := &Limit{Name: "n", When: []Condition{none}, At: at(1),
		Except: []Exception{{When: acme}, {When: acme, Until: end, At: at(3)}}}
	for _, tt := range []struct {
		at   time.Time
		over string
	}{
		{end.Add(-1), ""},
		{end, `f:3:0: an exception of "n" is over: tenant=acme until 2030-01-01T00:00:00Z`},
		{end.Add(time.Hour), `f:3:0: 2 exceptions of "n" are over, such as tenant=acme until 2030`},
	} {
		if tt.at.After(end) {
			l.Except = append(l.Except, l.Except[1])
		}
		got := l.Idle(tt.at)
		want := []string{`f:1:0: "n" is for tenant in none.txt, which has no values`}
		if tt.over != "" {
			want = append(want, tt.over)
		}
		if !slices.EqualFunc(got, want, func(p Problem, w string) bool {
			return strings.HasPrefix(p.String(), w)
		}) {
			t.Errorf("at %v: %v, want %q", tt.at, got, want)
		}
	}
}
