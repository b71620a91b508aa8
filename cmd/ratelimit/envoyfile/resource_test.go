package envoyfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// texts are those that YAML has another meaning for, or that need an escape.
var oddTexts = rapid.SampledFrom([]string{"", "a", "true", "~", "null", "1", "1.5", "0x1F", "<<",
	"=", "2026-01-01", "12:30", "a: b", "# a", "- a", "*", "x*",
	"&a", "'", `"`, "\\", " a ", "\t", "\n",
	"a\r\nb", "\x00", "\x7f", "\u0085", "\u2028", "\ufeff", "\ufffd", "日本", "%", "|",
	"!!int 3", "yes", "-", "[", "{}", strings.Repeat("x", 300)})

// drawResources draws descriptors of a resource.
func drawResources(t *rapid.T, depth int) []*config.RateLimitDescriptor {
	var all []*config.RateLimitDescriptor
	seen := make(map[string]bool)
	for i := range rapid.IntRange(0, 4).Draw(t, "descriptors") {
		d := &config.RateLimitDescriptor{
			Key:        fmt.Sprint("k", i) + oddTexts.Draw(t, "key"),
			Value:      oddTexts.Draw(t, "value"),
			ShadowMode: rapid.Bool().Draw(t, "shadow"),
			QuotaMode:  rapid.Bool().Draw(t, "quota"),
		}
		if composite := d.Key + "_" + d.Value; seen[composite] {
			continue
		} else {
			seen[composite] = true
		}
		if rapid.Bool().Draw(t, "limited") {
			d.RateLimit = &config.RateLimitPolicy{
				Unit: config.RateLimitUnit(rapid.IntRange(1, 7).Draw(t, "unit")),
				Name: oddTexts.Draw(t, "name"), RequestsPerUnit: rapid.Uint32().Draw(t, "requests")}
			if rapid.Bool().Draw(t, "unlimited") {
				d.RateLimit.Unit, d.RateLimit.Unlimited = config.RateLimitUnit_UNKNOWN, true
			}
			for range rapid.IntRange(0, 2).Draw(t, "replaces") {
				d.RateLimit.Replaces = append(d.RateLimit.Replaces, &config.RateLimitReplace{
					Name: "r" + oddTexts.Draw(t, "replaced")})
			}
		}
		if rapid.Bool().Draw(t, "metadata") {
			text, number := oddTexts.Draw(t, "text"), rapid.Float64().Draw(t, "number")
			d.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
				"m" + oddTexts.Draw(t, "field"): structpb.NewStringValue(text),
				"number":                        structpb.NewNumberValue(number),
				"list": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
					structpb.NewNullValue(), structpb.NewBoolValue(true)}}),
			}}
		}
		if depth > 1 {
			d.Descriptors = drawResources(t, depth-1)
		}
		all = append(all, d)
	}
	return all
}

// TestResources: a resource has the limits that its messages say, whatever their texts look like in
// YAML.
func TestResources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &config.RateLimitConfig{Name: "n", Domain: "d" + oddTexts.Draw(t, "domain"),
			Descriptors: drawResources(t, 3)}
		f := FileOf(r)
		d, err := Read([]File{f}, Options{})
		if err != nil {
			t.Fatalf("%s\n%v", f.Text, err)
		}
		byName := make(map[string]*rules.Limit)
		for _, l := range d.Limits() {
			byName[l.Name] = l
		}
		limits := 0
		var check func(path []string, all []*config.RateLimitDescriptor)
		check = func(path []string, all []*config.RateLimitDescriptor) {
			for _, want := range all {
				composite := want.Key
				if want.Value != "" {
					composite += "_" + want.Value
				}
				path := append(path[:len(path):len(path)], composite)
				check(path, want.Descriptors)
				if want.RateLimit == nil {
					continue
				}
				limits++
				l := byName[limitName(path)]
				if l == nil {
					t.Fatalf("%s\n%q has no limit", f.Text, path)
				}
				rate := rules.Rate{Unlimited: true}
				if !want.RateLimit.Unlimited {
					rate = rules.Rate{Units: int64(want.RateLimit.RequestsPerUnit),
						Window: units[strings.ToLower(want.RateLimit.Unit.String())]}
				}
				metadata := want.Metadata.AsMap()
				if l.Rate != rate || l.Label != want.RateLimit.Name || l.Quota != want.QuotaMode ||
					l.Shadow != want.ShadowMode || l.Domain != r.Domain ||
					len(metadata)+len(l.Metadata) > 0 && !reflect.DeepEqual(l.Metadata, metadata) {
					t.Fatalf("%s\n%q is %+v, want %v", f.Text, path, l, want)
				}
			}
		}
		check([]string{r.Domain}, r.Descriptors)
		if got := len(d.Limits()) - 1; got != limits { // one is for overrides
			t.Fatalf("%s\n%d limits, want %d", f.Text, got, limits)
		}
	})
}

// TestWrongResources: what is wrong with a resource is said as of a file, with a place in its text.
func TestWrongResources(t *testing.T) {
	leaf := func(change func(*config.RateLimitDescriptor)) *config.RateLimitConfig {
		d := &config.RateLimitDescriptor{Key: "k", RateLimit: &config.RateLimitPolicy{
			Unit: config.RateLimitUnit_DAY, RequestsPerUnit: 1}}
		change(d)
		return &config.RateLimitConfig{Name: "n", Domain: "d",
			Descriptors: []*config.RateLimitDescriptor{d}}
	}
	deep := leaf(func(*config.RateLimitDescriptor) {})
	for range 100 {
		deep.Descriptors = []*config.RateLimitDescriptor{{Key: "k", Descriptors: deep.Descriptors}}
	}
	for name, tt := range map[string]struct {
		resource *config.RateLimitConfig
		want     string
	}{
		"no domain": {&config.RateLimitConfig{Name: "n"}, "xds:n:1:1: the file has no domain"},
		"no key": {leaf(func(d *config.RateLimitDescriptor) { d.Key = "" }),
			"xds:n:3:3: the descriptor has no key"},
		"no unit": {leaf(func(d *config.RateLimitDescriptor) { d.RateLimit.Unit = 0 }),
			"rate_limit has no unit"},
		"unknown unit": {leaf(func(d *config.RateLimitDescriptor) { d.RateLimit.Unit = 99 }),
			`"99" is not a unit`},
		"a unit of unlimited": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Unlimited = true
		}), "unit has no meaning beside unlimited"},
		"an empty replaces": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Replaces = []*config.RateLimitReplace{{}}
		}), "the element of replaces has no name"},
		"replaces itself": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Name, d.RateLimit.Replaces = "a", []*config.RateLimitReplace{{Name: "a"}}
		}), "replaces its own name"},
		"too deep": {deep, "nested more than"},
		"twice": {func() *config.RateLimitConfig {
			r := leaf(func(*config.RateLimitDescriptor) {})
			r.Descriptors = append(r.Descriptors, r.Descriptors[0])
			return r
		}(), "another descriptor beside this one"},
	} {
		t.Run(name, func(t *testing.T) {
			f := FileOf(tt.resource)
			_, err := Read([]File{f}, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s\n%v, want %s", f.Text, err, tt.want)
			}
		})
	}
	f := FileOf(leaf(func(d *config.RateLimitDescriptor) { d.RateLimit.RequestsPerUnit = 0 }))
	if _, err := Read([]File{f}, Options{}); err != nil { // 0 is how a message has no number
		t.Errorf("no requests_per_unit: %v", err)
	}
	if _, err := Read([]File{f, f}, Options{}); err == nil {
		t.Error("two resources have one domain")
	}
}

// TestPath: a position in the text of a resource is under the keys of the descriptors around it.
func TestPath(t *testing.T) {
	d := func(key string, below ...*config.RateLimitDescriptor) *config.RateLimitDescriptor {
		return &config.RateLimitDescriptor{Key: key, Descriptors: below}
	}
	f := FileOf(&config.RateLimitConfig{Name: "n", Domain: "- key: d", Descriptors: []*config.
		RateLimitDescriptor{d("a", d("b"), d("c", d("e"))), d("f")}})
	want := []string{"", "", ` (under the key "a")`, ` (under the key "a")`,
		` (under the key "a", "b")`, ` (under the key "a", "c")`, ` (under the key "a", "c")`,
		` (under the key "a", "c", "e")`, ` (under the key "f")`, ` (under the key "f")`}
	for i, want := range want {
		at := rules.Position{File: f.Name, Line: i + 1}
		if got := Path([]File{{Name: "other"}, f}, at); got != want {
			t.Errorf("line %d of\n%s\nis%s, want%s", i+1, f.Text, got, want)
		}
	}
	if got := Path([]File{f}, rules.Position{File: "other", Line: 5}); got != "" {
		t.Errorf("of another file: %s", got)
	}
}
