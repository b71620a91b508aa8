package envoyfile

import (
	"math"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// metadata returns the metadata of a descriptor as JSON has it. Nil means that there is none.
func (d *document) metadata(n *yaml.Node) map[string]any {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.Add(n, "metadata is not a mapping")
		return nil
	}
	m, _ := d.value(n, maxDepth).(map[string]any)
	if len(m) == 0 {
		return nil
	}
	return m
}

func (d *document) value(n *yaml.Node, depth int) any {
	n = yamlfile.Resolve(n)
	switch {
	case !d.Spend(n):
		return nil
	case depth == 0:
		d.Add(n, "metadata is nested more than %d deep", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.object(n, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, element := range n.Content {
			list = append(list, d.value(element, depth-1))
		}
		return list
	}
	return d.scalar(n)
}

func (d *document) object(n *yaml.Node, depth int) map[string]any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := yamlfile.Resolve(n.Content[i])
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			d.Add(key, "a name in metadata is not a text; << has no meaning there")
			continue
		}
		if _, has := m[key.Value]; has {
			d.Add(key, "%s is given twice", yamlfile.Clip(key.Value))
		}
		m[key.Value] = d.value(n.Content[i+1], depth-1)
	}
	return m
}

// scalar returns null, a boolean, a number, or anything else as the text that it is written as.
func (d *document) scalar(n *yaml.Node) any {
	var b bool
	var number float64
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		if n.Decode(&number) != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			d.Add(n, "%q in metadata is a number that JSON does not have", yamlfile.Clip(n.Value))
		}
		return number
	}
	return n.Value
}
