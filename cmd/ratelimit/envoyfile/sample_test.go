package envoyfile

import (
	"fmt"
	"strings"
	"testing"
)

// TestSamples: each limit has a request, and so has each pair of patterns with requests in common.
func TestSamples(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 1}"
	domains, err := Read([]File{{"f", []byte("domain: d\ndescriptors:\n" +
		"- {key: a, value: v, " + limit + "}\n- {key: a, " + limit + "}\n" +
		"- {key: a, value: 'x*y', " + limit + "}\n- {key: a, value: '*-*', " + limit + "}\n" +
		"- {key: a, value: 'z*', descriptors: [{key: b, " + limit + "}]}\n" +
		"- {key: c, value: 'z*', " + limit + "}\n")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, s := range domains.Samples() {
		var parts []string
		for _, e := range s.Descriptor {
			parts = append(parts, strings.ReplaceAll(e.Name+"="+e.Value, "\x00", "?"))
		}
		name := "none"
		if l, _, ok := domains.Find(s.Domain, s.Descriptor); ok {
			name = l.Name
		}
		found[strings.Join(parts, " ")] = name
	}
	want := map[string]string{"a=v": "d|a_v", "a=?": "d|a", "a=x*y": "d|a_x*y", "a=*-*": "d|a_*-*",
		"a=z* b=?": "d|a_z*|b", "c=z*": "d|c_z*", "a=x-y": "d|a_x*y", "a=z-": "d|a_*-*",
		"a=z- b=?": "none"}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the samples are %v, want %v", found, want)
	}
}

// TestSamplesAreBounded: patterns below patterns, whose pairs have no end, have few samples.
func TestSamplesAreBounded(t *testing.T) {
	descriptors := "[{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]"
	for range 3 {
		var level []string
		for i := range 20 {
			level = append(level, fmt.Sprintf("{key: a, value: '*%c*', descriptors: %s}", 'a'+i,
				descriptors))
		}
		descriptors = "[" + strings.Join(level, ", ") + "]"
	}
	domains, err := Read([]File{{"f", []byte("domain: d\ndescriptors: " + descriptors)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(domains.Samples()); n != maxSamples {
		t.Errorf("%d samples, want %d", n, maxSamples)
	}
}
