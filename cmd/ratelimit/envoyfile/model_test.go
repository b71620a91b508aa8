package envoyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A spec is a descriptor of a random file.
type spec struct {
	key, value string
	limited    bool
	shared     bool // the values of its pattern have one history
	children   []*spec
}

func (s *spec) composite() string {
	if s.value == "" {
		return s.key
	}
	return s.key + "_" + s.value
}

var (
	keys   = rapid.SampledFrom([]string{"a", "b", "a_b", "a*"})
	values = rapid.SampledFrom([]string{"", "x", "b", "b_x", "xyx", "*", "x*", "*x", "x*x", "*y*"})
)

func drawSpecs(t *rapid.T, depth int) []*spec {
	var specs []*spec
	if depth == 0 {
		return nil
	}
	for range rapid.IntRange(0, 5).Draw(t, "descriptors") {
		s := &spec{
			key: keys.Draw(t, "key"), value: values.Draw(t, "value"),
			limited: rapid.Bool().Draw(t, "limited"),
		}
		s.shared = strings.Contains(s.composite(), "*") && rapid.Bool().Draw(t, "shared")
		same := func(other *spec) bool { return other.composite() == s.composite() }
		if slices.ContainsFunc(specs, same) {
			continue
		}
		s.children = drawSpecs(t, depth-1)
		specs = append(specs, s)
	}
	return specs
}

// write writes specs as YAML.
func write(b *strings.Builder, specs []*spec, indent string) {
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for _, s := range specs {
		fmt.Fprintf(b, "%s- key: %q\n", indent, s.key)
		if s.value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, s.value)
		}
		if s.shared {
			fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
		}
		if s.limited {
			fmt.Fprintf(b, "%s  rate_limit: {unit: day, requests_per_unit: 1}\n", indent)
		}
		if len(s.children) > 0 {
			write(b, s.children, indent+"  ")
		}
	}
}

// model returns the path of the limit of a descriptor, as the documentation of envoyproxy/ratelimit
// describes it, and the descriptor whose history it has.
func model(
	specs []*spec, descriptor rules.Descriptor,
) (path []string, history rules.Descriptor, ok bool) {
	level := specs
	for i, e := range descriptor {
		text := e.Name + "_" + e.Value
		next := modelNext(level, text, e.Name)
		if next == nil {
			return nil, nil, false
		}
		path = append(path, next.composite())
		if c := next.composite(); next.shared && glob(c).MatchString(text) {
			e.Value = strings.TrimPrefix(c, e.Name+"_")
		}
		history = append(history, e)
		if i == len(descriptor)-1 {
			return path, history, next.limited
		}
		level = next.children
	}
	return nil, nil, false
}

func modelNext(level []*spec, text, name string) *spec {
	for _, s := range level {
		if s.composite() == text {
			return s
		}
	}
	for _, s := range level {
		if c := s.composite(); strings.Contains(c, "*") && glob(c).MatchString(text) {
			return s
		}
	}
	for _, s := range level {
		if s.composite() == name {
			return s
		}
	}
	return nil
}

func glob(pattern string) *regexp.Regexp {
	quoted := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `(.|\n)*`)
	return regexp.MustCompile("^" + quoted + "$")
}

func drawDescriptor(t *rapid.T) rules.Descriptor {
	var d rules.Descriptor
	names := rapid.SampledFrom([]string{"a", "b", "a_b", "ab", "a*"})
	texts := rapid.SampledFrom([]string{"", "x", "b", "b_x", "xyx", "xx", "yx", "x*", "z", "/%"})
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		d = append(d, rules.Entry{Name: names.Draw(t, "name"), Value: texts.Draw(t, "text")})
	}
	return d
}

// Find finds what the model does, and descriptors have one history if the model says so, and only
// then.
func TestModel(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		specs := drawSpecs(t, 3)
		var b strings.Builder
		b.WriteString("domain: d\n")
		write(&b, specs, "")
		d, err := Read([]File{{"f", []byte(b.String())}}, Options{})
		if err != nil {
			t.Fatalf("%s\n%v", &b, err)
		}
		histories := make(map[string]rules.Descriptor)
		keys := make(map[string]string)
		for range 60 {
			descriptor := drawDescriptor(t)
			limit, key, ok := d.Find("d", descriptor)
			path, of, want := model(specs, descriptor)
			if ok != want || ok && limit.Name != limitName(append([]string{"d"}, path...)) {
				t.Fatalf("%s\n%v leads to %v %+v, want %v %q",
					&b, descriptor, ok, limit, want, path)
			}
			if !ok {
				continue
			}
			matched++
			history := limit.Name + " " + key
			if other, has := histories[history]; has && !slices.Equal(other, of) {
				t.Fatalf("%s\n%v and %v have the history %s", &b, other, descriptor, history)
			}
			histories[history] = of
			text := rules.Key(namesAndValues(of)...)
			if other, has := keys[text]; has && other != history {
				t.Fatalf("%s\n%v has the history %s, not %s", &b, descriptor, history, other)
			}
			keys[text] = history
		}
	})
	if matched < 100 {
		t.Errorf("only %d descriptors have a limit", matched)
	}
}

// namesAndValues returns the names and values of a descriptor.
func namesAndValues(d rules.Descriptor) (texts []string) {
	for _, e := range d {
		texts = append(texts, e.Name, e.Value)
	}
	return texts
}
