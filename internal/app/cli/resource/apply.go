package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// AppliedFieldsAnnotation holds the names of the fields that the last apply set, as a fieldTree in JSON. It
// holds no values, because a three-way merge does not need them and a spec may hold secrets.
const AppliedFieldsAnnotation = "fleetloop.io/applied-fields"

// A fieldTree holds the names of the fields of an object, each with those below it. A field without fields
// below it is a value, such as a number or a list.
type fieldTree map[string]fieldTree

// appliedFields are the fields of a resource that an apply set.
type appliedFields struct {
	Spec        fieldTree `json:"spec,omitempty"`
	Labels      fieldTree `json:"labels,omitempty"`
	Annotations fieldTree `json:"annotations,omitempty"`
}

// Desired is the part of a resource that its owner writes.
type Desired struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec"`
}

// ThreeWayMerge returns what a document makes of the live resource. Fields of the document are set. Fields
// that the last apply set and the document lacks are removed. All other fields are kept. Lists are replaced as a
// whole, and null removes a field.
func ThreeWayMerge(live v1.Resource, d Document) (Desired, error) {
	// The fields that the last apply set.
	var last appliedFields
	if text := live.Annotations[AppliedFieldsAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			return Desired{}, fmt.Errorf("read the annotation %s: %w", AppliedFieldsAnnotation, err)
		}
	}

	// The three-way merge.
	spec, err := removeFieldsNoLongerWanted(live.Spec, last.Spec, d.Spec)
	if err != nil {
		return Desired{}, err
	}
	if spec, err = ApplyMergePatch(spec, d.Spec); err != nil {
		return Desired{}, err
	}
	annotations := maps.Clone(d.Annotations)
	delete(annotations, AppliedFieldsAnnotation) // of a document that get has written
	want := Desired{
		Spec:        spec,
		Labels:      threeWayMergeStrings(live.Labels, last.Labels, d.Labels),
		Annotations: threeWayMergeStrings(live.Annotations, last.Annotations, annotations),
	}

	// The fields that this apply sets, for the next one.
	now := appliedFields{Labels: treeOfKeys(d.Labels), Annotations: treeOfKeys(annotations)}
	if now.Spec, err = treeOfObjectKeys(d.Spec); err != nil {
		return Desired{}, err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return Desired{}, fmt.Errorf("write the annotation %s: %w", AppliedFieldsAnnotation, err)
	}
	want.Annotations[AppliedFieldsAnnotation] = string(text)
	return want, nil
}

// WasApplied reports whether a resource was created or changed by an apply.
func WasApplied(r v1.Resource) bool { return r.Annotations[AppliedFieldsAnnotation] != "" }

// DesiredOf returns the part of a live resource that its owner writes.
func DesiredOf(live v1.Resource) Desired {
	return Desired{Labels: live.Labels, Annotations: live.Annotations, Spec: live.Spec}
}

// Equal reports whether two desired states have the same fields and values. Numbers are compared as they are written.
func (d Desired) Equal(other Desired) bool {
	return maps.Equal(d.Labels, other.Labels) && maps.Equal(d.Annotations, other.Annotations) &&
		reflect.DeepEqual(decodeJSONOrString(d.Spec), decodeJSONOrString(other.Spec))
}

// PatchRequest returns the request that changes a resource to this state.
func (d Desired) PatchRequest() v1.PatchRequest {
	return v1.PatchRequest{Spec: d.Spec, Labels: orEmpty(d.Labels), Annotations: orEmpty(d.Annotations)}
}

func orEmpty(values map[string]string) *map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	return &values
}

func decodeJSONOrString(raw json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return string(raw)
	}
	return value
}

// removeFieldsNoLongerWanted removes the fields of last from a live object, except those that wanted has. An object that
// becomes empty is removed, too.
func removeFieldsNoLongerWanted(live json.RawMessage, last fieldTree, wanted json.RawMessage) (json.RawMessage, error) {
	fields, ok, err := decodeObject(live)
	if err != nil || !ok {
		return live, err
	}
	want, _, err := decodeObject(wanted)
	if err != nil {
		return nil, err
	}
	for key, below := range last {
		value, exists := fields[key]
		if !exists {
			continue
		}
		_, isWanted := want[key]
		if len(below) == 0 { // a value
			if !isWanted {
				delete(fields, key)
			}
			continue
		}
		if fields[key], err = removeFieldsNoLongerWanted(value, below, want[key]); err != nil {
			return nil, err
		}
		if !isWanted && string(fields[key]) == "{}" {
			delete(fields, key)
		}
	}
	return json.Marshal(fields)
}

// threeWayMergeStrings returns live labels or annotations without those of the last apply, and with the wanted ones.
func threeWayMergeStrings(live map[string]string, last fieldTree, wanted map[string]string) map[string]string {
	merged := map[string]string{}
	for key, value := range live {
		if _, applied := last[key]; !applied {
			merged[key] = value
		}
	}
	maps.Copy(merged, wanted)
	return merged
}

func treeOfKeys(values map[string]string) fieldTree {
	tree := fieldTree{}
	for key := range values {
		tree[key] = fieldTree{}
	}
	return tree
}

// treeOfObjectKeys returns the fields of an object that are not null.
func treeOfObjectKeys(raw json.RawMessage) (fieldTree, error) {
	fields, _, err := decodeObject(raw)
	if err != nil {
		return nil, err
	}
	tree := fieldTree{}
	for key, value := range fields {
		if string(bytes.TrimSpace(value)) == "null" {
			continue
		}
		if tree[key], err = treeOfObjectKeys(value); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// ReadDocumentTree is ReadDocuments with the files of all folders below path.
func ReadDocumentTree(path string, stdin io.Reader) ([]Document, error) {
	return readDocuments(path, stdin, listDocumentFilesRecursively)
}

func listDocumentFilesRecursively(path string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && (name == path || isDocumentFile(name)) {
			names = append(names, name)
		}
		return err
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no .yaml, .yml or .json file in or below %s", path)
	}
	return names, err
}

func isDocumentFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// SortKeys returns an object with the keys of all objects in it sorted. Numbers keep their text.
func SortKeys(raw json.RawMessage) (json.RawMessage, error) {
	sorted, err := json.Marshal(decodeJSONOrString(raw))
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return sorted, nil
}
