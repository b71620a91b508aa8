package main

import (
	"testing"
	"time"
)

func TestExamine(t *testing.T) {
	const ms = time.Millisecond
	at := func(t time.Duration, admitted bool) call { return call{t, t + ms, admitted} }
	q := quota{2, 100 * ms}
	for _, tt := range []struct {
		name                 string
		trace                []call
		most, refused, wrong int
	}{
		{"within the limit",
			[]call{at(0, true), at(50*ms, true), at(60*ms, false), at(100*ms, true)}, 2, 1, 0},
		{"over the limit", []call{at(0, true), at(10*ms, true), at(98*ms, true)}, 3, 0, 0},
		{"over the limit by a microsecond",
			[]call{at(0, true), at(10*ms, true), at(99*ms-exactTick, true)}, 3, 0, 0},
		{"over it by less than a clock tells",
			[]call{at(0, true), at(10*ms, true), at(99*ms-exactTick/2, true)}, 2, 0, 0},
		{"not certain to be over", []call{at(0, true), at(10*ms, true), at(99*ms, true)}, 2, 0, 0},
		{"wrong refusal", []call{at(0, true), at(1*ms, true), at(200*ms, false)}, 2, 1, 1},
		{"wrong refusal by a microsecond",
			[]call{at(0, true), at(1*ms, true), at(101*ms+exactTick, false)}, 2, 1, 1},
		{"wrong by less than a clock tells",
			[]call{at(0, true), at(1*ms, true), at(101*ms, false)}, 2, 1, 0},
		{"refusal not certain to be wrong",
			[]call{at(0, true), at(1*ms, true), at(100*ms, false)}, 2, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			most, refused, wrong := examine(tt.trace, q)
			if most != tt.most || refused != tt.refused || wrong != tt.wrong {
				t.Errorf("got %d, %d, %d, want %d, %d, %d", most, refused, wrong, tt.most,
					tt.refused, tt.wrong)
			}
		})
	}
}
