package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits for the values of a file: with aliases a small file can represent a huge value, or an
// infinite one.
const (
	maxNodes = 10_000 // total number of values
	maxDepth = 32     // depth of nested mappings and lists
	maxKey   = 512    // bytes of a key
)

// readAndDecodeFile reads the values of the file. It returns an error if the file is unreadable; errors
// within it are recorded.
func (l *loader) readAndDecodeFile(root reflect.Value) error {
	data := l.src.FileData
	if data == nil && l.src.File != "" {
		var err error
		data, err = readFileUpToLimit(l.src.File)
		if err != nil {
			return fmt.Errorf("read configuration file: %w", err)
		}
	}
	if len(data) > maxFile {
		return fmt.Errorf("read configuration file %s: more than %d bytes", l.src.File, maxFile)
	}
	doc, err := parseSingleYAMLDocument(data)
	if err != nil {
		return fmt.Errorf("%s:%w", l.src.File, err)
	}
	if doc == nil {
		return nil
	}
	l.decodeNode(doc, l.root, root, "")
	if l.nodes > maxNodes {
		return fmt.Errorf("read configuration file %s: more than %d values, aliases included", l.src.File, maxNodes)
	}
	return nil
}

// parseSingleYAMLDocument parses one YAML document; an empty one is nil. The error begins with the line.
func parseSingleYAMLDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // an empty file gives nothing and is no error
	}
	if err != nil {
		return nil, moveYAMLLineToFront(err)
	}

	var second yaml.Node
	err = dec.Decode(&second)
	if err == nil {
		return nil, fmt.Errorf("%d: a second YAML document begins here; use one document", second.Line)
	}
	if !errors.Is(err, io.EOF) {
		return nil, moveYAMLLineToFront(err)
	}
	return doc.Content[0], nil
}

// moveYAMLLineToFront converts "yaml: line 3: what" to "3: what".
func moveYAMLLineToFront(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, what, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, text = n, what
		}
		switch text {
		// The library counts lines from one in errors of its scanner, but from zero in these errors
		// of its parser.
		case "did not find expected key",
			"did not find expected node content",
			"did not find expected '-' indicator",
			"did not find expected ',' or ']'",
			"did not find expected ',' or '}'",
			"did not find expected <document start>":
			line++
		}
	}
	return fmt.Errorf("%d: not valid YAML: %s", line, text)
}

// decodeNode decodes a node into v. It records the position of the value under path.
func (l *loader) decodeNode(n *yaml.Node, s *shape, v reflect.Value, path string) {
	at := place{n.Line, n.Column}
	if !l.enterNodeWithinLimits(at, path) {
		return
	}
	defer l.leaveNode()
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		if s.kind == scalar {
			l.addProblemAt(at, path, "has no value; set one or remove the key")
		}
	case s.kind == scalar && n.Kind == yaml.ScalarNode:
		l.decodeScalar(n, s, v, path)
	case s.kind == tree:
		v.Set(reflect.ValueOf(Tree{l.decodeUntypedTree(n, path)}))
	case s.kind == section && n.Kind == yaml.MappingNode:
		l.decodeSection(n, s, v, path)
	case s.kind == list && n.Kind == yaml.SequenceNode:
		l.decodeList(n, s, v, path)
	case s.kind == mapping && n.Kind == yaml.MappingNode:
		l.decodeMap(n, s, v, path)
	case s.kind == ordered && n.Kind == yaml.MappingNode:
		v.Set(reflect.ValueOf(l.decodeOrderedMap(n, path)))
	default:
		l.addProblemAt(at, path, "must be %s, not %s", s.describeExpectedSyntax(), describeNodeKind(n))
	}
}

// enterNodeWithinLimits records the position of a value, and reports whether it is within the limits. If it is,
// leaveNode must follow.
func (l *loader) enterNodeWithinLimits(at place, path string) (entered bool) {
	l.nodes++
	if l.nodes > maxNodes {
		return false
	}
	if l.depth == maxDepth {
		l.addProblemAt(at, path, "is nested more than %d levels deep", maxDepth)
		return false
	}
	l.depth++
	l.places[path] = at
	return true
}

func (l *loader) leaveNode() { l.depth-- }

// decodeScalar decodes a text. A string accepts any scalar as written, so that `value: 1.10` stays
// 1.10; every other type accepts only its own values.
func (l *loader) decodeScalar(n *yaml.Node, s *shape, v reflect.Value, path string) {
	at := l.places[path]
	tag := n.ShortTag()
	name := s.documentedTypeName()
	switch {
	case name == "boolean" && tag != "!!bool",
		name == "integer" && tag != "!!int",
		name == "number" && tag != "!!int" && tag != "!!float":
		l.addProblemAt(at, path, "must be %s, not %s", s.describeExpectedSyntax(), describeNodeKind(n))
		return
	case n.Style&yaml.TaggedStyle != 0 && tag != "!!str":
		l.addProblemAt(at, path, "has the tag %s, which is not supported", tag)
		return
	}
	if err := setScalarFromText(s, v, n.Value); err != nil {
		l.addProblemAt(at, path, "%w", err)
	}
}

func (l *loader) decodeSection(n *yaml.Node, s *shape, v reflect.Value, path string) {
	given := map[*field]*yaml.Node{}
	for _, pair := range l.listValidPairs(n, path) {
		f := s.findField(pair.key.Value)
		if f == nil {
			l.addUnknownKeyProblem(pair.key, s, path)
			continue
		}
		at := place{pair.key.Line, pair.key.Column}
		key := joinPath(path, f.key)
		if other := given[f]; other != nil {
			l.addProblemAt(at, key, "is set here as %q and at line %d as %q; remove one of them",
				pair.key.Value, other.Line, other.Value)
			continue
		}
		given[f] = pair.key
		fv := v.FieldByIndex(f.index)
		if pair.key.Value == f.fileKey {
			l.decodeFromNamedFile(pair.value, f, fv, key)
		} else {
			l.decodeNode(pair.value, f.shape, fv, key)
		}
		if _, isSetting := l.origins[key]; isSetting && !isEmpty(pair.value) {
			l.origins[key] = l.originInFile(at, key)
		}
	}
}

// decodeFromNamedFile reads a value from a file that the configuration names. A relative path is relative to
// the configuration file.
func (l *loader) decodeFromNamedFile(n *yaml.Node, f *field, v reflect.Value, path string) {
	at := place{n.Line, n.Column}
	if !l.enterNodeWithinLimits(at, path) {
		return
	}
	defer l.leaveNode()
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		l.addProblemAt(at, path, "must have a file path as %q, not %s", f.fileKey, describeNodeKind(n))
		return
	}
	name := n.Value
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(l.src.File), name)
	}
	if err := setValueFromFile(f.shape, v, name); err != nil {
		l.addProblemAt(at, path, "cannot be read: %w", err)
	}
}

func (l *loader) decodeList(n *yaml.Node, s *shape, v reflect.Value, path string) {
	out := reflect.MakeSlice(s.typ, len(n.Content), len(n.Content))
	for i, en := range n.Content {
		setDefaultsWhereZero(s.elem, out.Index(i))
		l.decodeNode(en, s.elem, out.Index(i), path+"["+strconv.Itoa(i)+"]")
	}
	v.Set(out)
}

func (l *loader) decodeMap(n *yaml.Node, s *shape, v reflect.Value, path string) {
	out := reflect.MakeMapWithSize(s.typ, len(n.Content)/2)
	for _, pair := range l.listValidPairs(n, path) {
		element := reflect.New(s.elem.typ).Elem()
		setDefaultsWhereZero(s.elem, element)
		l.decodeNode(pair.value, s.elem, element, path+"["+pair.key.Value+"]")
		out.SetMapIndex(reflect.ValueOf(pair.key.Value).Convert(s.typ.Key()), element)
	}
	v.Set(out)
}

func (l *loader) decodeOrderedMap(n *yaml.Node, path string) OrderedMap {
	out := make(OrderedMap, 0, len(n.Content)/2)
	for _, pair := range l.listValidPairs(n, path) {
		if entry, ok := l.decodeMapEntry(pair, joinPath(path, pair.key.Value)); ok {
			out = append(out, entry)
		}
	}
	return out
}

func (l *loader) decodeMapEntry(pair pair, path string) (entry MapEntry, ok bool) {
	n := pair.value
	at := place{n.Line, n.Column}
	if !l.enterNodeWithinLimits(at, path) {
		return MapEntry{}, false
	}
	defer l.leaveNode()
	entry = MapEntry{Key: pair.key.Value, Line: n.Line, Column: n.Column}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.MappingNode:
		entry.Map = l.decodeOrderedMap(n, path)
	case n.Kind == yaml.ScalarNode && !isEmpty(n):
		entry.Value = n.Value
	default:
		l.addProblemAt(at, path, "must be a string or a mapping, not %s", describeNodeKind(n))
		return MapEntry{}, false
	}
	return entry, true
}

// A pair is one entry of a mapping.
type pair struct{ key, value *yaml.Node }

// listValidPairs returns the pairs of a mapping. It records keys that are not texts or are duplicates, and
// omits their pairs.
func (l *loader) listValidPairs(n *yaml.Node, path string) []pair {
	pairs := make([]pair, 0, len(n.Content)/2)
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := place{key.Line, key.Column}
		switch {
		case key.Kind != yaml.ScalarNode || isEmpty(key):
			l.addProblemAt(at, path, "must have string keys, not %s", describeNodeKind(key))
		case key.ShortTag() == "!!merge":
			l.addProblemAt(at, path, "has a merge key (<<), which is not supported; write the keys out")
		case len(key.Value) > maxKey:
			l.addProblemAt(at, path, "has a key of more than %d bytes", maxKey)
		case lines[key.Value] != 0:
			l.addProblemAt(at, joinPath(path, key.Value), "is set twice, first at line %d", lines[key.Value])
		default:
			lines[key.Value] = key.Line
			pairs = append(pairs, pair{key, n.Content[i+1]})
		}
	}
	return pairs
}

// addUnknownKeyProblem records an unknown key, with the most similar known key.
func (l *loader) addUnknownKeyProblem(key *yaml.Node, s *shape, path string) {
	var names []string
	for _, f := range s.fields {
		names = append(names, f.keyNames()...)
	}
	hint := ""
	if best := Nearest(key.Value, names); best != "" {
		hint = fmt.Sprintf("; did you mean %q?", joinPath(path, best))
	} else if where := l.root.findPathOfKey(key.Value); where != "" {
		hint = fmt.Sprintf("; did you mean %q?", where)
	}
	l.problems = append(l.problems, problem{place{key.Line, key.Column}, fmt.Errorf("%s:%d:%d: unknown key %q%s",
		l.src.File, key.Line, key.Column, joinPath(path, key.Value), hint)})
}

func (l *loader) addProblemAt(at place, path, format string, args ...any) {
	l.addProblemf(l.originInFile(at, path), format, args...)
}

func (l *loader) originInFile(at place, path string) Origin {
	return Origin{Key: path, Source: FromFile, Name: l.src.File, Line: at.line, Column: at.column}
}

// findField returns the field with a key, an alias or a file key.
func (s *shape) findField(key string) *field {
	for _, f := range s.fields {
		if slices.Contains(f.keyNames(), key) {
			return f
		}
	}
	return nil
}

// findPathOfKey returns the path of a key in any other section.
func (s *shape) findPathOfKey(key string) string {
	if f := s.findField(key); f != nil {
		return f.path
	}
	for _, f := range s.fields {
		if f.shape.kind == section {
			if path := f.shape.findPathOfKey(key); path != "" {
				return path
			}
		}
	}
	return ""
}

func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// describeExpectedSyntax returns the notation of a value of the shape in the file.
func (s *shape) describeExpectedSyntax() string {
	switch s.kind {
	case section, mapping, ordered:
		return "a mapping"
	case list:
		return "a list"
	case scalar, tree:
	}
	switch s.documentedTypeName() {
	case "boolean":
		return "true or false"
	case "integer":
		return "an integer"
	case "number":
		return "a number"
	case "duration":
		return `a duration such as "5s"`
	}
	return "a string"
}

// describeNodeKind returns the kind of a node, for an error that does not show its content, which may be
// secret.
func describeNodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!int", "!!float":
			return "a number"
		case "!!bool":
			return "true or false"
		}
	case yaml.DocumentNode, yaml.AliasNode:
		return "an alias"
	}
	return "a string"
}
