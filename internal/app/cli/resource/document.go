package resource

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// MaxFileSize limits the size of a file in bytes.
const MaxFileSize = 16 << 20

// A Document describes one resource, in YAML or JSON. A file holds one or more.
//
// Reading is strict: unknown fields are errors with file and line, and an error in one file rejects
// all files. It ignores the read-only fields of API responses, so that the output of the API is
// valid input.
type Document struct {
	// Ref names the resource, and its parent if the kind has one.
	Ref Ref

	// CreateRequest is the document as an API request.
	v1.CreateRequest

	// Where is the file and the position, for errors.
	Where string
}

// ReadDocuments reads all documents of a file, of the files of a folder, or of stdin if path is
// "-". It returns an error if there are none.
func ReadDocuments(path string, stdin io.Reader) ([]Document, error) {
	return readDocuments(path, stdin, listDocumentFiles)
}

func readDocuments(path string, stdin io.Reader, listFiles func(string) ([]string, error)) ([]Document, error) {
	names := []string{path}
	if path != "-" {
		var err error
		if names, err = listFiles(path); err != nil {
			return nil, err
		}
	}
	var docs []Document
	var errs []error
	for _, name := range names {
		data, err := readFile(name, stdin)
		if err != nil {
			return nil, err
		}
		found, err := parseDocuments(name, data)
		errs = append(errs, err)
		docs = append(docs, found...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s contains no resource", path)
	}
	return docs, nil
}

func listDocumentFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isDocumentFile(e.Name()) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no .yaml, .yml or .json file in %s", path)
	}
	return names, nil
}

func readFile(name string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", name, MaxFileSize)
	}
	return data, nil
}

// parseDocuments reads the documents of one file, JSON or YAML.
func parseDocuments(name string, data []byte) ([]Document, error) {
	raws, err := splitDocuments(name, data)
	if err != nil {
		return nil, err
	}
	var docs []Document
	var errs []error
	for _, r := range raws {
		d, err := parseDocument(r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.where, err))
			continue
		}
		docs = append(docs, d)
	}
	return docs, errors.Join(errs...)
}

// ReadObject reads the single JSON or YAML document of a file, which must be an object, as JSON.
// The path - means standard input.
func ReadObject(path string, stdin io.Reader) (json.RawMessage, error) {
	data, err := readFile(path, stdin)
	if err != nil {
		return nil, err
	}
	list, err := splitDocuments(path, data)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || !bytes.HasPrefix(bytes.TrimSpace(list[0].json), []byte("{")) {
		return nil, fmt.Errorf("%s must contain one JSON object", path)
	}
	return list[0].json, nil
}

// looksLikeJSON distinguishes JSON from YAML in flow style, whose keys need no quotes.
func looksLikeJSON(data []byte) bool {
	const space = " \t\r\n"
	object, ok := bytes.CutPrefix(bytes.TrimLeft(data, space+"["), []byte("{"))
	if !ok {
		return bytes.HasPrefix(bytes.TrimLeft(data, space), []byte("["))
	}
	key := bytes.TrimLeft(object, space)
	return len(key) == 0 || key[0] == '"' || key[0] == '}'
}

// rawDocument is one document as JSON.
type rawDocument struct {
	json  []byte
	where string
}

func splitDocuments(name string, data []byte) ([]rawDocument, error) {
	if looksLikeJSON(data) {
		return splitJSONDocumentsAndLists(name, data)
	}
	return splitYAMLDocumentsAndLists(name, data)
}

func splitJSONDocumentsAndLists(name string, data []byte) ([]rawDocument, error) {
	var list []rawDocument
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return unpackLists(list)
		}
		if err != nil {
			line := 1 + bytes.Count(data[:min(dec.InputOffset(), int64(len(data)))], []byte("\n"))
			return nil, fmt.Errorf("%s: JSON after line %d: %w", name, line, err)
		}
		list = append(list, rawDocument{raw, fmt.Sprintf("%s: document %d", name, len(list)+1)})
	}
}

func splitYAMLDocumentsAndLists(name string, data []byte) ([]rawDocument, error) {
	var list []rawDocument
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return unpackLists(list)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if node.Kind != yaml.DocumentNode || node.Content[0].Tag == "!!null" {
			continue // an empty document
		}
		where := fmt.Sprintf("%s:%d", name, node.Content[0].Line)
		tagDatesAndKeysAsStrings(&node)
		var value any
		if err := node.Decode(&value); err != nil {
			problem := strings.TrimPrefix(err.Error(), "yaml: ")
			return nil, fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(problem), " ")) // in one line
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: convert to JSON: %w", where, err)
		}
		list = append(list, rawDocument{raw, where})
	}
}

// tagDatesAndKeysAsStrings preserves the text of YAML values without a JSON type: dates, and keys that are
// not strings.
func tagDatesAndKeysAsStrings(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && child.ShortTag() != "!!merge" {
			child.Tag = "!!str"
		}
		tagDatesAndKeysAsStrings(child)
	}
}

// unpackLists replaces lists, as written by get, with their items.
func unpackLists(list []rawDocument) ([]rawDocument, error) {
	var out []rawDocument
	for _, d := range list {
		raw := bytes.TrimSpace(d.json)
		var items []json.RawMessage
		if bytes.HasPrefix(raw, []byte("[")) {
			if err := json.Unmarshal(raw, &items); err != nil {
				return nil, fmt.Errorf("%s: %w", d.where, err)
			}
		} else {
			var object struct {
				Items *[]json.RawMessage `json:"items"` // nil unless the object is a list
			}
			if json.Unmarshal(raw, &object) != nil || object.Items == nil {
				out = append(out, d) // one resource, or an error that its parser describes better
				continue
			}
			items = *object.Items
		}
		for n, item := range items {
			out = append(out, rawDocument{item, fmt.Sprintf("%s, item %d", d.where, n+1)})
		}
	}
	return out, nil
}

// documentContent is the structure of a document in a file.
type documentContent struct {
	v1.CreateRequest

	Cluster         string        `json:"cluster"`
	OwnerResource   documentOwner `json:"ownerResource"`
	OwnerReferences documentOwner `json:"owner_references"`

	// Read-only fields of API responses.
	ID          any `json:"id"`
	Href        any `json:"href"`
	Generation  any `json:"generation"`
	CreatedTime any `json:"created_time"`
	UpdatedTime any `json:"updated_time"`
	DeletedTime any `json:"deleted_time"`
	CreatedBy   any `json:"created_by"`
	UpdatedBy   any `json:"updated_by"`
	DeletedBy   any `json:"deleted_by"`
	Status      any `json:"status"`
}

// documentOwner refers to a parent by name or ID.
type documentOwner struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"`
	Href string `json:"href"`
}

func parseDocument(raw rawDocument) (Document, error) {
	var c documentContent
	dec := json.NewDecoder(bytes.NewReader(raw.json))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = describeTypeError(wrong)
		}
		return Document{}, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	given := c.Metadata
	if given == nil {
		given = &v1.Metadata{}
	}
	d := Document{Where: raw.where, CreateRequest: c.CreateRequest}
	var err error
	if d.Ref, err = c.resolveRef(given.Name); err != nil {
		return d, err
	}
	if len(c.Labels) > 0 && len(given.Labels) > 0 && !maps.Equal(c.Labels, given.Labels) {
		return d, errors.New("labels and metadata.labels differ; give only one")
	}
	if len(d.Labels) == 0 {
		d.Labels = given.Labels
	}
	d.Kind = d.Ref.Kind.Name
	d.Name = d.Ref.Name
	d.Metadata = nil
	if given.DisplayName != "" {
		d.Metadata = &v1.Metadata{Name: d.Name, DisplayName: given.DisplayName}
	}
	if len(d.Spec) == 0 || string(d.Spec) == "null" {
		d.Spec = json.RawMessage("{}")
	}
	return d, nil
}

// describeTypeError describes a value of the wrong type without Go type names.
func describeTypeError(e *json.UnmarshalTypeError) error {
	field := strings.TrimPrefix(e.Field, "CreateRequest.") // the field that documentContent embeds
	found, _, _ := strings.Cut(e.Value, " ")               // a number may include its digits
	wanted := "an object"
	var next string
	if e.Type.Kind() == reflect.String {
		wanted = "a string"
		if found == "number" || found == "bool" {
			next = "; quote the value"
		}
	}
	words := map[string]string{
		"array":  "a list",
		"bool":   "true or false",
		"number": "a number",
		"object": "an object",
		"string": "a string",
	}
	return fmt.Errorf("%s is %s, want %s%s", cmp.Or(field, "the document"), cmp.Or(words[found], found), wanted, next)
}

// resolveRef determines the resource and its parent.
func (c documentContent) resolveRef(metadataName string) (r Ref, err error) {
	if c.Kind == "" {
		return r, errors.New("kind is missing; add, for example, kind: Cluster")
	}
	if r.Kind, err = ParseKind(c.Kind); err != nil {
		return r, err
	}
	if r.Name, err = eitherIfConsistent("name", c.Name, metadataName); err != nil {
		return r, err
	}
	if r.Name == "" {
		return r, errors.New("name is missing; add, for example, name: eu-1")
	}
	r.Parent = c.Cluster
	for _, o := range []documentOwner{c.OwnerResource, c.OwnerReferences} {
		if r.Parent, err = eitherIfConsistent("the parent", r.Parent, cmp.Or(o.ID, o.Name)); err != nil {
			return r, err
		}
	}
	switch {
	case r.Kind.IsChild() && r.Parent == "":
		return r, fmt.Errorf("a %s needs a cluster; add, for example, cluster: eu-1", r.Kind.Singular)
	case !r.Kind.IsChild() && r.Parent != "":
		return r, fmt.Errorf("a %s does not belong to a cluster; remove cluster and ownerResource", r.Kind.Singular)
	}
	return r, nil
}

func eitherIfConsistent(what, one, other string) (string, error) {
	if one != "" && other != "" && one != other {
		return "", fmt.Errorf("%s is given twice, as %q and %q", what, one, other)
	}
	return cmp.Or(one, other), nil
}
