package cli

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
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

const maxFile = 16 << 20

// A document describes one resource in a file. What the API serves beside is
// read over, so that the output of get can be given back.
type document struct {
	Kind            string            `json:"kind"`
	Name            string            `json:"name"`
	Labels          map[string]string `json:"labels"`
	Metadata        v1.Metadata       `json:"metadata"`
	Cluster         string            `json:"cluster"`
	OwnerResource   *owner            `json:"ownerResource"`
	OwnerReferences *owner            `json:"owner_references"`
	Spec            json.RawMessage   `json:"spec"`

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

	where string // file and place, for errors
	kind  kind
}

// An owner names a parent, by name or id.
type owner struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"`
	Href string `json:"href"`
}

// ref names the resource that the document describes.
func (d document) ref() ref { return ref{kind: d.kind, parent: d.Cluster, name: d.Name} }

// request is the document as the API wants it.
func (d document) request() v1.CreateRequest {
	r := v1.CreateRequest{Kind: d.kind.name, Name: d.Name, Labels: d.Labels, Spec: d.Spec}
	if d.Metadata.DisplayName != "" {
		r.Metadata = &v1.Metadata{Name: d.Name, DisplayName: d.Metadata.DisplayName}
	}
	return r
}

// readDocuments reads all documents of a file, of the files of a folder, or
// of standard input. All are checked before any is used.
func (s *session) readDocuments(path string) ([]document, error) {
	names := []string{path}
	if path != "-" {
		var err error
		if names, err = filesIn(path); err != nil {
			return nil, err
		}
	}
	var docs []document
	var errs []error
	for _, name := range names {
		data, err := s.readFile(name)
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
		return nil, fmt.Errorf("%s describes no resource", path)
	}
	return docs, nil
}

func filesIn(path string) ([]string, error) {
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
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no .yaml, .yml or .json file in %s", path)
	}
	return names, nil
}

func (s *session) readFile(name string) ([]byte, error) {
	in := s.env.Stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", name, maxFile)
	}
	return data, nil
}

// parseDocuments reads the documents of one file, JSON or YAML.
func parseDocuments(name string, data []byte) ([]document, error) {
	split := yamlDocuments
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && (first[0] == '{' || first[0] == '[') {
		split = jsonDocuments
	}
	raws, err := split(name, data)
	if err != nil {
		return nil, err
	}
	var docs []document
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

// A rawDocument is one document as JSON.
type rawDocument struct {
	json  []byte
	where string
}

func jsonDocuments(name string, data []byte) ([]rawDocument, error) {
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

func yamlDocuments(name string, data []byte) ([]rawDocument, error) {
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
			continue // nothing between two lines of dashes
		}
		where := fmt.Sprintf("%s:%d", name, node.Content[0].Line)
		keepTexts(&node)
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: not to be written as JSON: %w", where, err)
		}
		list = append(list, rawDocument{raw, where})
	}
}

// keepTexts keeps what YAML takes for more than JSON knows as it is written:
// dates, and keys that are not texts.
func keepTexts(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && child.ShortTag() != "!!merge" {
			child.Tag = "!!str"
		}
		keepTexts(child)
	}
}

// unpackLists puts the items of lists, as get writes them, in their place.
func unpackLists(list []rawDocument) ([]rawDocument, error) {
	var out []rawDocument
	for _, d := range list {
		raw := bytes.TrimSpace(d.json)
		items := struct {
			Items *[]json.RawMessage `json:"items"`
		}{}
		if len(raw) > 0 && raw[0] == '[' {
			items.Items = &[]json.RawMessage{}
			if err := json.Unmarshal(raw, items.Items); err != nil {
				return nil, fmt.Errorf("%s: %w", d.where, err)
			}
		} else if json.Unmarshal(raw, &items) != nil || items.Items == nil {
			out = append(out, d)
			continue
		}
		for n, item := range *items.Items {
			out = append(out, rawDocument{item, fmt.Sprintf("%s, item %d", d.where, n+1)})
		}
	}
	return out, nil
}

func parseDocument(raw rawDocument) (document, error) {
	d := document{where: raw.where}
	dec := json.NewDecoder(bytes.NewReader(raw.json))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.Kind == "" {
		return d, errors.New("kind is missing, as in kind: Cluster")
	}
	var err error
	if d.kind, err = findKind(d.Kind); err != nil {
		return d, err
	}
	if d.Name, err = same("name", d.Name, d.Metadata.Name); err != nil {
		return d, err
	}
	if d.Name == "" {
		return d, errors.New("name is missing")
	}
	if len(d.Labels) > 0 && len(d.Metadata.Labels) > 0 && !maps.Equal(d.Labels, d.Metadata.Labels) {
		return d, errors.New("labels and metadata.labels differ; give one of the two")
	}
	if len(d.Labels) == 0 {
		d.Labels = d.Metadata.Labels
	}
	if len(d.Spec) == 0 || string(d.Spec) == "null" {
		d.Spec = json.RawMessage("{}")
	}
	return d, d.readOwner()
}

// readOwner settles who the parent is and keeps it as Cluster.
func (d *document) readOwner() error {
	for _, o := range []*owner{d.OwnerResource, d.OwnerReferences} {
		if o == nil {
			continue
		}
		var err error
		if d.Cluster, err = same("the parent", d.Cluster, cmp.Or(o.ID, o.Name)); err != nil {
			return err
		}
	}
	switch {
	case d.kind.isChild() && d.Cluster == "":
		return fmt.Errorf("a %s is created in a cluster; say which, as in cluster: c1", d.kind.singular)
	case !d.kind.isChild() && d.Cluster != "":
		return fmt.Errorf("a %s is in no cluster; leave out cluster and ownerResource", d.kind.singular)
	}
	return nil
}

func same(what, one, other string) (string, error) {
	if one != "" && other != "" && one != other {
		return "", fmt.Errorf("%s is given twice, as %q and as %q", what, one, other)
	}
	return cmp.Or(one, other), nil
}
