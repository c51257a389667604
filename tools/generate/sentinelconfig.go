package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// sentinelConfigCRD is written before this command runs.
const sentinelConfigCRD = "deploy/crds/hyperfleet.redhat.com_sentinelconfigs.yaml"

const aboutSentinelConfig = `# SentinelConfig

A SentinelConfig configures one sentinel: which resources it watches, when a resource is due, and where it publishes CloudEvents.
It is a namespaced object of %s/%s. The [configuration file](config.md#sentinel) has the same settings under other names. Durations have Go's format: 10s, 30m, 1h30m.

With kubectl use the full name %s. The short name %s is also the short name of StorageClass; %s is unambiguous.

The API server rejects what the schema and the rules below do not allow. The sentinel checks the rest, such as expressions and Secrets. It reports errors in
the condition ConfigValid and continues with the last valid configuration.

`

// renderSentinelConfigReference describes the fields of SentinelConfig.
func renderSentinelConfigReference() ([]byte, error) {
	crd, version, err := readCRD(sentinelConfigCRD)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	names := crd.Spec.Names
	buf.WriteString(generated)
	fmt.Fprintf(
		&buf,
		aboutSentinelConfig,
		crd.Spec.Group,
		version.Name,
		formatCodeSpan(names.Plural),
		formatCodeSpan(names.ShortNames[0]),
		formatCodeSpan(names.ShortNames[0]+"."+crd.Spec.Group),
	)
	root := version.Schema.OpenAPIV3Schema
	for _, section := range []struct{ key, title string }{{"spec", "Spec"}, {"status", "Status"}} {
		fmt.Fprintf(&buf, "## %s\n\n| Field | Type | Default | Description |\n|---|---|---|---|\n", section.title)
		part := root.Properties[section.key]
		writeFieldRows(&buf, section.key, &part)
		buf.WriteByte('\n')
	}
	buf.WriteString(
		"## Validation rules\n\nThe API server rejects a change that breaks a rule, with this message.\n\n| Fields | Message |\n|---|---|\n",
	)
	spec := root.Properties["spec"]
	for _, r := range collectValidationRules("spec", &spec, nil) {
		fmt.Fprintf(&buf, "| %s | %s |\n", strings.Join(r.fields, ", "), r.message)
	}
	buf.WriteString("\n## Columns\n\n| Column | Field | Shown |\n|---|---|---|\n")
	for _, c := range version.AdditionalPrinterColumns {
		wide := "always"
		if c.Priority > 0 {
			wide = "with `-o wide`"
		}
		fmt.Fprintf(&buf, "| %s | %s | %s |\n", c.Name, formatCodeSpan(c.JSONPath), wide)
	}
	return buf.Bytes(), nil
}

// renderSentinelConfigSchema returns the JSON Schema of SentinelConfig, for editors. It omits the
// validation rules.
func renderSentinelConfigSchema() ([]byte, error) {
	crd, version, err := readCRD(sentinelConfigCRD)
	if err != nil {
		return nil, err
	}
	root := version.Schema.OpenAPIV3Schema.DeepCopy()
	dropExtensionsAndForbidUnknown(root)
	text, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	tree["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	tree["title"] = crd.Spec.Names.Kind
	tree["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	properties, _ := tree["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": crd.Spec.Group + "/" + version.Name}
	properties["kind"] = map[string]any{"const": crd.Spec.Names.Kind}
	out, err := json.MarshalIndent(tree, "", "  ")
	return append(out, '\n'), err
}

func readCRD(
	file string,
) (definition *apiextensionsv1.CustomResourceDefinition, first *apiextensionsv1.CustomResourceDefinitionVersion, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	return &crd, &crd.Spec.Versions[0], nil
}

// writeFieldRows writes a row for each field below s.
func writeFieldRows(buf *bytes.Buffer, path string, s *apiextensionsv1.JSONSchemaProps) {
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[key]
		def := ""
		switch {
		case field.Default != nil:
			def = formatCodeSpan(strings.Trim(string(field.Default.Raw), `"`))
		case slices.Contains(s.Required, key):
			def = "required"
		}
		fmt.Fprintf(buf, "| %s | %s | %s | %s |\n", formatCodeSpan(path+"."+key), formatType(&field), def, formatFieldDescription(&field))
		if key == "conditions" {
			continue // they have the fields of all conditions
		}
		writeFieldRows(buf, path+"."+key, &field)
		if field.Items != nil {
			writeFieldRows(buf, path+"."+key+"[]", field.Items.Schema)
		}
	}
}

// formatType returns the name of a type.
func formatType(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.Items != nil:
		return "list of " + formatType(s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + formatType(s.AdditionalProperties.Schema)
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// formatFieldDescription returns the description, with the limits of the schema.
func formatFieldDescription(s *apiextensionsv1.JSONSchemaProps) string {
	parts := []string{strings.TrimSuffix(strings.Join(strings.Fields(s.Description), " "), ".") + "."}
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, formatCodeSpan(strings.Trim(string(v.Raw), `"`)))
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	bound := func(word string, n *int64) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s %d.", word, *n))
		}
	}
	number := func(f *float64) *int64 {
		if f == nil {
			return nil
		}
		return new(int64(*f))
	}
	bound("At least", number(s.Minimum))
	bound("At most", number(s.Maximum))
	if s.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("At most %d entries.", *s.MaxItems))
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.Join(parts, " ")), "|", `\|`)
}

// A rule is a message of the API server, with its fields.
type rule struct {
	fields  []string
	message string
}

// collectValidationRules adds the rules of s and of the fields below it to list.
func collectValidationRules(path string, s *apiextensionsv1.JSONSchemaProps, list []rule) []rule {
	for _, v := range s.XValidations {
		i := slices.IndexFunc(list, func(r rule) bool { return r.message == v.Message })
		if i < 0 {
			i, list = len(list), append(list, rule{message: v.Message})
		}
		list[i].fields = append(list[i].fields, formatCodeSpan(path+v.FieldPath))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[key]
		list = collectValidationRules(path+"."+key, &field, list)
	}
	if s.Items != nil {
		list = collectValidationRules(path+"[]", s.Items.Schema, list)
	}
	return list
}

// dropExtensionsAndForbidUnknown rejects unknown keys of objects, and removes fields that only the API server uses.
func dropExtensionsAndForbidUnknown(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.XListType, s.XListMapKeys, s.XPreserveUnknownFields = nil, nil, nil, nil
	for key, field := range s.Properties {
		dropExtensionsAndForbidUnknown(&field)
		s.Properties[key] = field
	}
	if s.Items != nil {
		dropExtensionsAndForbidUnknown(s.Items.Schema)
	}
	if len(s.Properties) > 0 && s.AdditionalProperties == nil {
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: false}
	}
}

// formatCodeSpan returns a text as code, escaped for a table cell.
func formatCodeSpan(text string) string {
	return "`" + strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`) + "`"
}
