package loggen

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// TestSample holds that the sample of package replay is what its README says.
func TestSample(t *testing.T) {
	want, err := os.ReadFile("../testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	err = Write(&got, Options{Format: "combined", Seed: 1, Keys: 60, Lines: 1000,
		Start:    time.Date(2026, time.May, 1, 10, 0, 0, 0, time.UTC),
		Interval: 900 * time.Millisecond, Late: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the sample is another one")
	}
}

func TestUnknownFormat(t *testing.T) {
	if err := Write(new(bytes.Buffer), Options{Format: "xml", Lines: 1}); err == nil {
		t.Error("there was no error")
	}
}
