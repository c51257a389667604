package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

func newExplainCommand(s *session) *cobra.Command {
	recursive := false
	cmd := &cobra.Command{
		Use:   "explain KIND[.FIELD...]",
		Short: "Show the fields of a kind, with type and description",
		Long: "Show the fields of a kind or of one of its fields, from the OpenAPI document of this program. It needs no server.\n" +
			"A spec has any fields, unless the server has a schema: 'fleetloop schema get KIND' shows it.",
		Example:           "  fleetloop explain cluster\n  fleetloop explain nodepool.status.conditions\n  fleetloop explain cluster --recursive",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(resource.Collections(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := explain(args[0], recursive)
			if err != nil {
				return usageError(cmd, err)
			}
			_, err = io.WriteString(s.env.Stdout, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "show the fields of fields, without descriptions")
	return cmd
}

// apiSchema is a schema of the OpenAPI document.
type apiSchema struct {
	Ref         string               `json:"$ref"`
	AllOf       []apiSchema          `json:"allOf"`
	Type        string               `json:"type"`
	Format      string               `json:"format"`
	Description string               `json:"description"`
	Enum        []string             `json:"enum"`
	Required    []string             `json:"required"`
	Properties  map[string]apiSchema `json:"properties"`
	Items       *apiSchema           `json:"items"`
	// Additional is a schema, or true or false.
	Additional json.RawMessage `json:"additionalProperties"`
}

type explainer map[string]apiSchema

// explain describes a kind, or the field behind its name.
func explain(path string, recursive bool) (string, error) {
	x, err := newExplainer()
	if err != nil {
		return "", fmt.Errorf("read the OpenAPI document: %w", err)
	}
	name, fields, _ := strings.Cut(path, ".")
	kind, err := resource.ParseKind(name)
	if err != nil {
		return "", err
	}
	schema, field, err := x.findField(kind.Name, fields)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "KIND:   %s\n", kind.Name)
	if field != "" {
		fmt.Fprintf(&b, "FIELD:  %s <%s>\n", field, x.typeOf(schema))
	}
	x.writeDescriptionAndEnum(&b, "\n", schema)
	if len(x.fieldsOf(schema)) > 0 {
		b.WriteString("\nFIELDS:\n")
		x.writeFields(&b, "  ", schema, recursive)
	}
	return b.String(), nil
}

// newExplainer reads the schemas of the OpenAPI document.
func newExplainer() (explainer, error) {
	var document struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(v1.OpenAPIJSON()), &document); err != nil {
		return nil, err
	}
	x := explainer{}
	for name, raw := range document.Components.Schemas {
		var schema apiSchema
		if json.Unmarshal(raw, &schema) == nil { // those of other shapes have no part in resources
			x[name] = schema
		}
	}
	return x, nil
}

// findField returns the schema of the field at a path below a resource, and the path without empty parts.
func (x explainer) findField(kindName, path string) (schema apiSchema, field string, err error) {
	schema = x.resolveRef(x["Resource"])
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			continue
		}
		below := x.fieldsOf(schema)
		next, ok := below[name]
		if !ok {
			suggestion := ""
			if len(below) > 0 {
				suggestion = resource.SuggestWords(name, slices.Sorted(maps.Keys(below)))
			}
			return schema, field, fmt.Errorf("%s has no field %q%s", cmp.Or(field, kindName), name, suggestion)
		}
		schema, field = x.resolveRef(next), strings.TrimPrefix(field+"."+name, ".")
	}
	return schema, field, nil
}

// resolveRef follows references. A description beside a reference has precedence.
func (x explainer) resolveRef(s apiSchema) apiSchema {
	ref := s.Ref
	if len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	if ref == "" {
		return s
	}
	target := x.resolveRef(x[ref[strings.LastIndex(ref, "/")+1:]])
	target.Description = cmp.Or(s.Description, target.Description)
	return target
}

// fieldsOf returns the fields of an object, or of the objects in a list.
func (x explainer) fieldsOf(s apiSchema) map[string]apiSchema {
	if s.Items != nil {
		return x.fieldsOf(x.resolveRef(*s.Items))
	}
	return s.Properties
}

func (x explainer) typeOf(s apiSchema) string {
	var values apiSchema
	switch {
	case s.Items != nil:
		return "[]" + x.typeOf(x.resolveRef(*s.Items))
	case len(s.Properties) == 0 && len(s.Additional) > 0 && json.Unmarshal(s.Additional, &values) == nil:
		return "map[string]" + x.typeOf(x.resolveRef(values))
	case s.Format != "" && s.Type == "string":
		return s.Format
	}
	return cmp.Or(s.Type, "any")
}

func (x explainer) writeDescriptionAndEnum(b *strings.Builder, lead string, s apiSchema) {
	if text := strings.Join(strings.Fields(s.Description), " "); text != "" {
		b.WriteString(lead + text + "\n")
		lead = strings.TrimPrefix(lead, "\n")
	}
	if len(s.Enum) > 0 {
		b.WriteString(lead + "One of: " + strings.Join(s.Enum, ", ") + ".\n")
	}
}

func (x explainer) writeFields(b *strings.Builder, indent string, s apiSchema, recursive bool) {
	object := s
	for object.Items != nil {
		object = x.resolveRef(*object.Items)
	}
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		field := x.resolveRef(object.Properties[name])
		required := ""
		if slices.Contains(object.Required, name) {
			required = " -required-"
		}
		fmt.Fprintf(b, "%s%s <%s>%s\n", indent, name, x.typeOf(field), required)
		if recursive {
			x.writeFields(b, indent+"  ", field, true)
			continue
		}
		x.writeDescriptionAndEnum(b, indent+"  ", field)
	}
}
