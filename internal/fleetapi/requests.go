package fleetapi

import (
	"bytes"
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
)

// patchBody is a v1.PatchRequest that distinguishes null from absent.
type patchBody struct {
	Spec   json.RawMessage `json:"spec"`
	Labels json.RawMessage `json:"labels"`
}

func (b *patchBody) toPatch() (patch, error) {
	var p patch
	var errs []v1.FieldError
	if b.Spec != nil {
		errs = append(errs, checkAndCompactObject("spec", &b.Spec, true)...)
		p.spec = b.Spec
	}
	if b.Labels != nil {
		labels, wrong := readLabels("labels", b.Labels)
		errs = append(errs, wrong...)
		p.labels = labels
	}
	if len(errs) > 0 {
		return patch{}, rest.NewFieldsError(errs)
	}
	return p, nil
}

// fillFrom validates the request and copies its fields.
func (d *draft) fillFrom(k *kind, req *v1.CreateRequest) error {
	var errs []v1.FieldError
	refuse := func(field, constraint, message string, value any) {
		errs = append(errs, v1.FieldError{Field: field, Constraint: constraint, Message: message, Value: value})
	}
	if req.Kind != "" && req.Kind != k.name {
		refuse("kind", "enum", fmt.Sprintf("must be %s on this path", k.name), req.Kind)
	}
	d.Name = req.Name
	labels, labelsField := req.Labels, "labels"
	if m := req.Metadata; m != nil {
		if d.Name == "" {
			d.Name = m.Name
		}
		if m.Name != "" && m.Name != d.Name {
			refuse("metadata.name", "format", "must equal name or be left out", m.Name)
		}
		if m.Labels != nil && req.Labels != nil {
			refuse("metadata.labels", "format", "must not be given together with labels", nil)
		}
		if req.Labels == nil {
			labels, labelsField = m.Labels, "metadata.labels"
		}
		d.DisplayName = m.DisplayName
		if n := utf8.RuneCountInString(d.DisplayName); n > maxDisplayName || strings.ContainsRune(d.DisplayName, 0) {
			refuse("metadata.displayName", "format", fmt.Sprintf("must be at most %d characters without NUL", maxDisplayName), nil)
		}
	}
	errs = append(errs, checkName(k, d.Name)...)
	errs = append(errs, checkLabels(labelsField, labels)...)
	errs = append(errs, checkAndCompactObject("spec", &req.Spec, true)...)
	if len(errs) > 0 {
		return rest.NewFieldsError(errs)
	}
	d.Spec, d.Labels = req.Spec, labelsJSON(labels)
	return nil
}

func checkName(k *kind, name string) []v1.FieldError {
	if n := len(name); n >= k.minName && n <= k.maxName && len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return []v1.FieldError{{
		Field: "name", Constraint: "pattern", Value: name,
		Message: fmt.Sprintf("must be %d to %d lower-case letters, digits and hyphens, and start and end with a letter or digit", k.minName, k.maxName),
	}}
}

// checkLabels requires labels in the form of Kubernetes, so that every label can be selected.
func checkLabels(field string, labels map[string]string) []v1.FieldError {
	if len(labels) > maxLabels {
		return []v1.FieldError{{Field: field, Constraint: "max", Message: fmt.Sprintf("must be at most %d", maxLabels), Value: len(labels)}}
	}
	var errs []v1.FieldError
	for key, value := range labels {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			errs = append(errs, v1.FieldError{Field: field, Constraint: "pattern", Message: fmt.Sprintf("has the key %q: %s", key, wrong[0]), Value: key})
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			errs = append(errs, v1.FieldError{Field: field + "." + key, Constraint: "pattern", Message: wrong[0], Value: value})
		}
	}
	slices.SortFunc(errs, func(a, b v1.FieldError) int { return strings.Compare(a.Field+a.Message, b.Field+b.Message) })
	return errs
}

func readLabels(field string, raw json.RawMessage) (json.RawMessage, []v1.FieldError) {
	var labels map[string]string
	if raw[0] != '{' || json.Unmarshal(raw, &labels) != nil {
		return nil, []v1.FieldError{{Field: field, Constraint: "format", Message: "must be an object of strings; {} removes all labels"}}
	}
	if errs := checkLabels(field, labels); len(errs) > 0 {
		return nil, errs
	}
	return labelsJSON(labels), nil
}

func labelsJSON(labels map[string]string) json.RawMessage {
	b := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, key), ':')
		b = appendText(b, labels[key])
	}
	return append(b, '}')
}

// checkAndCompactObject requires an object, and removes its white space. If the object is not required, null
// counts as absent.
func checkAndCompactObject(field string, raw *json.RawMessage, required bool) []v1.FieldError {
	if !required && (len(*raw) == 0 || string(*raw) == "null") {
		*raw = nil
		return nil
	}
	v := jsontext.Value(bytes.TrimSpace(*raw))
	if v.Kind() != jsontext.KindBeginObject || v.Compact(jsontext.PreserveRawStrings(true)) != nil {
		return []v1.FieldError{{Field: field, Constraint: "format", Message: "must be an object"}}
	}
	*raw = json.RawMessage(v)
	return nil
}
