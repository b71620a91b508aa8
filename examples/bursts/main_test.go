package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
)

// TestBursts checks what each algorithm admits of each burst.
func TestBursts(t *testing.T) {
	all, err := decide(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		admitted    []int
		most, wrong int
	}{
		{[]int{20, 20, 0, 20, 20}, 40, 0},
		{[]int{20, 1, 14, 20, 3}, 35, 22},
		{[]int{20, 4, 14, 20, 20}, 38, 0},
		{[]int{20, 0, 0, 20, 20}, 20, 0},
	} {
		s := all[i]
		if !slices.Equal(s.Admitted, want.admitted) || s.Most() != want.most ||
			s.Wrong() != want.wrong {
			t.Errorf("%s: %v, at most %d, %d refused wrongly; want %v", s.Name, s.Admitted,
				s.Most(), s.Wrong(), want)
		}
	}
}

// TestPicture checks that the README shows this program's picture.
func TestPicture(t *testing.T) {
	all, err := decide(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var drawn bytes.Buffer
	if err := draw(&drawn, all); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(drawn.Bytes(), committed) {
		t.Error("the picture differs: go -C examples run ./bursts >docs/demo.svg")
	}
	for decoder := xml.NewDecoder(&drawn); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
