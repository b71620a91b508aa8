package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// A number is written with about three digits, and as null in JSON if it is NaN.
type number float64

// round5 rounds to five digits, so that a report is written the same after it was read from JSON.
func round5(v float64) number {
	if n, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64); err == nil {
		return number(n)
	}
	return number(v)
}

func (n number) MarshalJSON() ([]byte, error) {
	if v := float64(n); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(v)
	}
	return []byte("null"), nil
}

func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

func (n number) String() string {
	v := float64(n)
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100 || v == math.Trunc(v):
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.095:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// thousands inserts commas into the digits of a whole number.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// A value is a summary over rounds. Ratio summarizes the quotients by the reference within each
// round. In JSON it is an array: median, least, most, number of rounds and, if there is a ratio,
// its median, least and most.
type value struct {
	Median, Min, Max number
	Rounds           int
	Ratio            *ratio
}

func (v value) MarshalJSON() ([]byte, error) {
	list := []number{v.Median, v.Min, v.Max, number(v.Rounds)}
	if v.Ratio != nil {
		list = append(list, v.Ratio.Median, v.Ratio.Min, v.Ratio.Max)
	}
	return json.Marshal(list)
}

func (v *value) UnmarshalJSON(text []byte) error {
	var list []number
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) != 4 && len(list) != 7 {
		return fmt.Errorf("a value has %d numbers, want 4 or 7", len(list))
	}
	*v = value{Median: list[0], Min: list[1], Max: list[2], Rounds: int(list[3])}
	if len(list) == 7 {
		v.Ratio = &ratio{list[4], list[5], list[6]}
	}
	return nil
}

func (v *value) String() string {
	if v == nil {
		return "–"
	}
	s := withRange(v.Median, v.Min, v.Max, v.Rounds)
	if v.Ratio != nil {
		s += " **×" + withRange(v.Ratio.Median, v.Ratio.Min, v.Ratio.Max, v.Rounds) + "**"
	}
	return s
}

func withRange(median, low, high number, rounds int) string {
	if rounds < 2 || low.String() == high.String() {
		return median.String()
	}
	return fmt.Sprintf("%v [%v–%v]", median, low, high)
}

// A fact is one line about the run.
type fact struct{ Name, Value string }

type ratio struct{ Median, Min, Max number }
