package settings

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// A Tree is any value of the configuration file, such as the body of a request. Value is nil, a
// bool, int64, float64, string, []any or map[string]any. Report.WrapWithOrigin knows the position of each
// part: the key of a part is that of the Tree, with ".name" or "[0]" for each level.
type Tree struct{ Value any }

// decodeUntypedTree returns a node without a known shape. The caller has recorded its position.
func (l *loader) decodeUntypedTree(n *yaml.Node, path string) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for _, pair := range l.listValidPairs(n, path) {
			out[pair.key.Value] = l.decodeUntypedWithinLimits(pair.value, joinPath(path, pair.key.Value))
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for i, vn := range n.Content {
			out = append(out, l.decodeUntypedWithinLimits(vn, path+"["+strconv.Itoa(i)+"]"))
		}
		return out
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode:
	}
	return l.decodeUntypedScalar(n, path)
}

// decodeUntypedWithinLimits returns a part of a tree.
func (l *loader) decodeUntypedWithinLimits(n *yaml.Node, path string) any {
	if !l.enterNodeWithinLimits(place{n.Line, n.Column}, path) {
		return nil
	}
	defer l.leaveNode()
	return l.decodeUntypedTree(n, path)
}

func (l *loader) decodeUntypedScalar(n *yaml.Node, path string) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			l.addProblemAt(l.places[path], path, "is no value that this file can have")
			return nil
		}
		switch v := v.(type) {
		case int:
			return int64(v)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				l.addProblemAt(l.places[path], path, "must be a finite number")
				return nil
			}
		case uint64:
			l.addProblemAt(l.places[path], path, "must be at most %d", math.MaxInt64)
			return nil
		}
		return v
	case "!!str", "!!timestamp":
		return n.Value
	default:
		l.addProblemAt(l.places[path], path, "has the tag %s, which is not supported", tag)
		return nil
	}
}

// newUntypedNode returns a tree as YAML.
func newUntypedNode(value any) *yaml.Node {
	out := &yaml.Node{}
	if err := out.Encode(value); err != nil {
		return newTextNode(err.Error()) // no Tree that Load made
	}
	return out
}
