package fleetapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// Bounds of the fields that an owner may set.
const (
	maxLabels      = 64
	maxDisplayName = 255
	// maxAnnotations limits the keys and values of all annotations in bytes.
	maxAnnotations = 256 << 10
)

// patchBody is a v1.PatchRequest that distinguishes null from absent.
type patchBody struct {
	Spec        json.RawMessage `json:"spec"`
	Labels      json.RawMessage `json:"labels"`
	Annotations json.RawMessage `json:"annotations"`
}

func (b *patchBody) validateAndConvertToPatch() (patch, error) {
	var p patch
	var errs []v1.FieldError
	if b.Spec != nil {
		errs = append(errs, requireAndCompactObject("spec", &b.Spec, true)...)
		p.spec = b.Spec
	}
	if b.Labels != nil {
		labels, wrong := decodeStringMap("labels", b.Labels, validateLabels)
		errs = append(errs, wrong...)
		p.labels = labels
	}
	if b.Annotations != nil {
		annotations, wrong := decodeStringMap("annotations", b.Annotations, validateAnnotations)
		errs = append(errs, wrong...)
		p.annotations = annotations
	}
	if len(errs) > 0 {
		return patch{}, rest.NewFieldsError(errs)
	}
	return p, nil
}

// applyChangesTo sets the values that differ, and reports whether the spec does.
func (p *patch) applyChangesTo(record *Record) (specChanged bool) {
	replaceIfDifferent(&record.Labels, p.labels)
	replaceIfDifferent(&record.Annotations, p.annotations)
	return replaceIfDifferent(&record.Spec, p.spec)
}

// replaceIfDifferent replaces a JSON value, unless the new one is nil or means the same.
func replaceIfDifferent(current *json.RawMessage, value json.RawMessage) (replaced bool) {
	if value == nil || equalJSON(value, *current) {
		return false
	}
	*current = value
	return true
}

// validateCreateRequest validates a request and returns what the owner gives in it.
func validateCreateRequest(k *kind, req *v1.CreateRequest) (Content, error) {
	var errs []v1.FieldError
	refuse := func(field, constraint, message string, value any) {
		errs = append(errs, v1.FieldError{Field: field, Constraint: constraint, Message: message, Value: value})
	}
	if req.Kind != "" && req.Kind != k.name {
		refuse("kind", "enum", fmt.Sprintf("must be %s on this path", k.name), req.Kind)
	}
	name, displayName := req.Name, ""
	labels, labelsField := req.Labels, "labels"
	if m := req.Metadata; m != nil {
		name, displayName = cmp.Or(name, m.Name), m.DisplayName
		if m.Name != "" && m.Name != name {
			refuse("metadata.name", "format", "must equal name or be left out", m.Name)
		}
		if m.Labels != nil && req.Labels != nil {
			refuse("metadata.labels", "format", "must not be given together with labels", nil)
		}
		if req.Labels == nil {
			labels, labelsField = m.Labels, "metadata.labels"
		}
		if utf8.RuneCountInString(displayName) > maxDisplayName || strings.ContainsRune(displayName, 0) {
			refuse("metadata.displayName", "format", fmt.Sprintf("must be at most %d characters without NUL", maxDisplayName), nil)
		}
	}
	errs = append(errs, validateName(k, name)...)
	errs = append(errs, validateLabels(labelsField, labels)...)
	errs = append(errs, validateAnnotations("annotations", req.Annotations)...)
	errs = append(errs, requireAndCompactObject("spec", &req.Spec, true)...)
	if len(errs) > 0 {
		return Content{}, rest.NewFieldsError(errs)
	}
	return Content{
		Name: name, DisplayName: displayName, Spec: req.Spec,
		Labels: encodeSortedStrings(labels), Annotations: encodeSortedStrings(req.Annotations),
	}, nil
}

func validateName(k *kind, name string) []v1.FieldError {
	if n := len(name); n >= k.minName && n <= k.maxName && len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return []v1.FieldError{{
		Field: "name", Constraint: "pattern", Value: name,
		Message: fmt.Sprintf(
			"must be %d to %d lower-case letters, digits and hyphens, and start and end with a letter or digit",
			k.minName,
			k.maxName,
		),
	}}
}

// validateLabels requires labels in the form of Kubernetes, so that every label can be selected.
func validateLabels(field string, labels map[string]string) []v1.FieldError {
	if len(labels) > maxLabels {
		return []v1.FieldError{{Field: field, Constraint: "max", Message: fmt.Sprintf("must be at most %d", maxLabels), Value: len(labels)}}
	}
	var errs []v1.FieldError
	for key, value := range labels {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			errs = append(
				errs,
				v1.FieldError{Field: field, Constraint: "pattern", Message: fmt.Sprintf("has the key %q: %s", key, wrong[0]), Value: key},
			)
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			errs = append(errs, v1.FieldError{Field: field + "." + key, Constraint: "pattern", Message: wrong[0], Value: value})
		}
	}
	slices.SortFunc(errs, func(a, b v1.FieldError) int { return strings.Compare(a.Field+a.Message, b.Field+b.Message) })
	return errs
}

// validateAnnotations requires keys in the form of Kubernetes. Values may be any text that the store holds.
func validateAnnotations(field string, annotations map[string]string) []v1.FieldError {
	var errs []v1.FieldError
	size := 0
	for key, value := range annotations {
		size += len(key) + len(value)
		if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
			errs = append(
				errs,
				v1.FieldError{Field: field, Constraint: "pattern", Message: fmt.Sprintf("has the key %q: %s", key, wrong[0]), Value: key},
			)
		}
		if strings.ContainsRune(value, 0) {
			errs = append(errs, v1.FieldError{Field: field + "." + key, Constraint: "format", Message: "must not contain NUL"})
		}
	}
	if size > maxAnnotations {
		errs = append(
			errs,
			v1.FieldError{Field: field, Constraint: "max", Message: fmt.Sprintf("must be at most %d bytes", maxAnnotations), Value: size},
		)
	}
	slices.SortFunc(errs, func(a, b v1.FieldError) int { return strings.Compare(a.Field+a.Message, b.Field+b.Message) })
	return errs
}

// decodeStringMap decodes and validates an object of strings, and returns it with sorted keys.
func decodeStringMap(
	field string, raw json.RawMessage, validate func(string, map[string]string) []v1.FieldError,
) (canonical json.RawMessage, errs []v1.FieldError) {
	var values map[string]string
	if raw[0] != '{' || json.Unmarshal(raw, &values) != nil {
		return nil, []v1.FieldError{{Field: field, Constraint: "format", Message: "must be an object of strings; {} removes all " + field}}
	}
	if errs := validate(field, values); len(errs) > 0 {
		return nil, errs
	}
	return encodeSortedStrings(values), nil
}

func encodeSortedStrings(values map[string]string) json.RawMessage {
	b := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuotedText(b, key), ':')
		b = appendQuotedText(b, values[key])
	}
	return append(b, '}')
}

// requireAndCompactObject requires an object, and removes its white space. If the object is not required, null
// counts as absent.
func requireAndCompactObject(field string, object *json.RawMessage, required bool) []v1.FieldError {
	if !required && (len(*object) == 0 || string(*object) == "null") {
		*object = nil
		return nil
	}
	v := jsontext.Value(bytes.TrimSpace(*object))
	if v.Kind() != jsontext.KindBeginObject || v.Compact(jsontext.PreserveRawStrings(true)) != nil {
		return []v1.FieldError{{Field: field, Constraint: "format", Message: "must be an object"}}
	}
	*object = json.RawMessage(v)
	return nil
}
