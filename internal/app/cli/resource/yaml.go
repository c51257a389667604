package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// JSONToYAML writes JSON as YAML. Keys keep their order and numbers their digits.
func JSONToYAML(jsonText []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(jsonText))
	dec.UseNumber()
	node, err := decodeJSONToYAMLNode(dec)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(node), enc.Close()); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return b.Bytes(), nil
}

// decodeJSONToYAMLNode reads one JSON value.
func decodeJSONToYAMLNode(dec *json.Decoder) (*yaml.Node, error) {
	tok, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return decodeChildrenInto(dec, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"})
		}
		return decodeChildrenInto(dec, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
	case json.Number:
		tag := "!!int"
		if bytes.ContainsAny([]byte(v), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	case string:
		n := &yaml.Node{}
		n.SetString(v) // quotes strings that look like another type
		return n, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// decodeChildrenInto reads the rest of an object or a list. Keys and values of an object alternate, as in a
// mapping node.
func decodeChildrenInto(dec *json.Decoder, parent *yaml.Node) (*yaml.Node, error) {
	for dec.More() {
		child, err := decodeJSONToYAMLNode(dec)
		if err != nil {
			return nil, err
		}
		parent.Content = append(parent.Content, child)
	}
	if len(parent.Content) == 0 {
		parent.Style = yaml.FlowStyle // {} and [] have no other form
	}
	_, err := dec.Token()
	return parent, err
}
