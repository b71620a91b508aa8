package envoyfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// FileOf writes a resource of xDS as the file that means the same, so that both are read by one
// reader, and positions of problems are those of a text that can be shown. In a resource a number
// that is missing is 0, so requests_per_unit is never missing.
func FileOf(r *config.RateLimitConfig) File {
	var w writer
	w.field(0, "domain", r.GetDomain())
	w.descriptors(0, r.GetDescriptors())
	return File{"xds:" + r.GetName(), w.text}
}

// Path returns where a position is in the text of [FileOf], which its sender has not seen: " (under
// the key a, b)" with the keys of the descriptors that it is in. It is empty if there are none.
func Path(files []File, at rules.Position) string {
	var keys []string
	for _, f := range files {
		if f.Name != at.File {
			continue
		}
		lines := strings.Split(string(f.Text), "\n")
		within := len(f.Text)
		for i := min(at.Line, len(lines)) - 1; i >= 0; i-- {
			text := strings.TrimLeft(lines[i], " ")
			key, ok := strings.CutPrefix(text, "- key: ")
			if indent := len(lines[i]) - len(text); ok && indent < within {
				keys, within = append(keys, key), indent
			}
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.Reverse(keys)
	return " (under the key " + strings.Join(keys, ", ") + ")"
}

// A writer writes YAML. Its own library takes ten times as long.
type writer struct{ text []byte }

// field writes a field in a line of its own, so much indented. Go's escapes are those of YAML too.
func (w *writer) field(indent int, name, value string) {
	w.name(indent, name)
	w.text = append(strconv.AppendQuote(w.text, value), '\n')
}

// flag writes a field that is true, or nothing.
func (w *writer) flag(indent int, name string, value bool) {
	if value {
		w.name(indent, name)
		w.text = append(w.text, "true\n"...)
	}
}

func (w *writer) name(indent int, name string) {
	for range indent {
		w.text = append(w.text, ' ')
	}
	w.text = append(append(w.text, name...), ": "...)
}

// header writes the name of a field whose value is in the next lines.
func (w *writer) header(indent int, name string) {
	w.name(indent, name)
	w.text = append(w.text[:len(w.text)-1], '\n')
}

func (w *writer) descriptors(indent int, all []*config.RateLimitDescriptor) {
	if len(all) == 0 {
		return
	}
	w.header(indent, "descriptors")
	for _, d := range all {
		w.field(indent, "- key", d.GetKey())
		if d.GetValue() != "" {
			w.field(indent+2, "value", d.GetValue())
		}
		w.rateLimit(indent+2, d.GetRateLimit())
		w.flag(indent+2, "shadow_mode", d.GetShadowMode())
		w.flag(indent+2, "quota_mode", d.GetQuotaMode())
		w.flag(indent+2, "detailed_metric", d.GetDetailedMetric())
		w.metadata(indent+2, d.GetMetadata())
		w.descriptors(indent+2, d.GetDescriptors())
	}
}

func (w *writer) rateLimit(indent int, l *config.RateLimitPolicy) {
	if l == nil {
		return
	}
	w.header(indent, "rate_limit")
	if unit := l.GetUnit(); unit != config.RateLimitUnit_UNKNOWN {
		w.field(indent+2, "unit", unit.String())
	}
	if n := l.GetRequestsPerUnit(); !l.GetUnlimited() || n > 0 {
		w.name(indent+2, "requests_per_unit")
		w.text = append(strconv.AppendUint(w.text, uint64(n), 10), '\n')
	}
	w.flag(indent+2, "unlimited", l.GetUnlimited())
	if l.GetName() != "" {
		w.field(indent+2, "name", l.GetName())
	}
	if len(l.GetReplaces()) == 0 {
		return
	}
	w.header(indent+2, "replaces")
	for _, r := range l.GetReplaces() {
		w.field(indent+2, "- name", r.GetName())
	}
}

// metadata writes metadata in one line, in the form of JSON.
func (w *writer) metadata(indent int, metadata *structpb.Struct) {
	if len(metadata.GetFields()) == 0 {
		return
	}
	w.name(indent, "metadata")
	w.object(metadata)
	w.text = append(w.text, '\n')
}

func (w *writer) object(s *structpb.Struct) {
	w.text = append(w.text, '{')
	for i, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		w.comma(i)
		w.text = append(strconv.AppendQuote(w.text, name), ": "...)
		w.value(s.GetFields()[name])
	}
	w.text = append(w.text, '}')
}

func (w *writer) comma(i int) {
	if i > 0 {
		w.text = append(w.text, ", "...)
	}
}

func (w *writer) value(v *structpb.Value) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		w.object(kind.StructValue)
	case *structpb.Value_ListValue:
		w.text = append(w.text, '[')
		for i, element := range kind.ListValue.GetValues() {
			w.comma(i)
			w.value(element)
		}
		w.text = append(w.text, ']')
	case *structpb.Value_StringValue:
		w.text = strconv.AppendQuote(w.text, kind.StringValue)
	case *structpb.Value_BoolValue:
		w.text = strconv.AppendBool(w.text, kind.BoolValue)
	case *structpb.Value_NumberValue:
		if n := kind.NumberValue; math.IsNaN(n) || math.IsInf(n, 0) { // JSON has them as texts
			w.text = strconv.AppendQuote(w.text, fmt.Sprint(v.AsInterface()))
		} else {
			w.text = strconv.AppendFloat(w.text, n, 'g', -1, 64)
		}
	default:
		w.text = append(w.text, "null"...)
	}
}
