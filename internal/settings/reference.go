package settings

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// An Entry describes one setting for reference documentation.
type Entry struct {
	// Key is the path of the setting; "[]" stands for the elements of a list
	// and "[*]" for those of a map.
	Key string

	// Aliases holds alternative keys, and FileKey is the key for the path of a file with the value.
	// They replace the last key of the path.
	Aliases []string
	FileKey string

	// Type names the type, such as "duration" or "list of string".
	Type string

	// Default is the default value as text; empty if the setting has none.
	Default string

	// Env holds the variables, and Flag is the flag without its dashes.
	Env  []string
	Flag string

	// Required says that a value must be given.
	Required bool

	// Doc is the description of the setting.
	Doc string
}

// Reference describes every setting of cfg, a pointer to a struct, in order, including those within
// lists and maps.
func Reference(cfg any) []Entry {
	return collectReferenceEntries(readShapeAndSetDefaults(cfg))
}

func collectReferenceEntries(s *shape, defaults reflect.Value) []Entry {
	var out []Entry
	for _, f := range s.fields {
		fv := defaults.FieldByIndex(f.index)
		if f.shape.kind == section {
			out = append(out, collectReferenceEntries(f.shape, fv)...)
			continue
		}
		e := Entry{
			Key: f.path, Aliases: f.aliases, FileKey: f.fileKey,
			Type: f.shape.documentedTypeName(), Env: f.env, Flag: f.flag, Doc: f.doc,
			Required: strings.HasPrefix(f.rules+",", "required,") && !f.hasDefault,
		}
		if f.shape.hasTextForm() && (f.hasDefault || !fv.IsZero()) {
			e.Default = strings.Join(formatAsTexts(f.shape, fv), ",")
		}
		out = append(out, e)
		if elem := f.shape.elem; elem != nil && elem.kind == section {
			ev := reflect.New(elem.typ).Elem()
			setDefaultsWhereZero(elem, ev)
			out = append(out, collectReferenceEntries(elem, ev)...)
		}
	}
	return out
}

// WriteMarkdown writes entries as a Markdown table.
func WriteMarkdown(w io.Writer, entries []Entry) error {
	var b strings.Builder
	b.WriteString("| Key | Type | Default | Environment | Flag | Meaning |\n|---|---|---|---|---|---|\n")
	for _, e := range entries {
		env := e.Env
		if e.FileKey != "" {
			for _, name := range e.Env {
				env = append(slices.Clip(env), name+"_FILE")
			}
		}
		flag := ""
		if e.Flag != "" {
			flag = formatCodeSpan("--" + e.Flag)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			formatCodeSpan(e.Key), e.Type, e.formatDefaultCell(), formatCodeSpans(env), flag, escapeTableCell(e.formatDescriptionCell()))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write reference: %w", err)
	}
	return nil
}

func (e Entry) formatDefaultCell() string {
	switch {
	case e.Default != "":
		return formatCodeSpan(e.Default)
	case e.Required:
		return "required"
	default:
		return ""
	}
}

func (e Entry) formatDescriptionCell() string {
	text := e.Doc
	if len(e.Aliases) > 0 {
		text += " Also " + formatCodeSpans(e.Aliases) + "."
	}
	if e.FileKey != "" {
		text += " Alternative: " + formatCodeSpan(e.FileKey) + ", a file with the value."
	}
	return text
}

func formatCodeSpan(text string) string { return "`" + escapeTableCell(text) + "`" }

func formatCodeSpans(texts []string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = formatCodeSpan(text)
	}
	return strings.Join(out, ", ")
}

// escapeTableCell escapes a text so that it cannot end its cell or its row.
func escapeTableCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
