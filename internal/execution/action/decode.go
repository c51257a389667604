package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decodeParameters decodes parameters into a struct and returns their normalised JSON: with
// defaults, sorted, and in the notation of the API server.
func decodeParameters(fields []field, raw map[string]json.RawMessage, into reflect.Value) (normalized json.RawMessage, problems []string) {
	normal := make(map[string]any, len(fields))
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
		value, given := raw[f.Name]
		if !given || string(value) == "null" {
			value = json.RawMessage(f.Default)
		}
		if len(value) == 0 {
			if f.Required {
				problems = append(problems, fmt.Sprintf("%s: required (%s)", f.Name, describeType(f.Type)))
			}
			continue
		}
		understood, problem := f.decodeValue(value, into.Field(f.index))
		if problem != "" {
			problems = append(problems, f.Name+": "+problem)
			continue
		}
		if understood != nil {
			normal[f.Name] = understood
		}
	}
	for name := range raw {
		if !slices.Contains(names, name) {
			problems = append(problems, describeUnknownParameter(name, names))
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return nil, problems
	}
	text, err := json.Marshal(normal)
	if err != nil {
		return nil, []string{err.Error()}
	}
	return text, nil
}

func describeUnknownParameter(name string, names []string) string {
	name = TruncateText(name, 64)
	if near := nearestName(name, names); near != "" {
		return fmt.Sprintf("%s: unknown parameter: did you mean %s?", name, near)
	}
	return fmt.Sprintf("%s: unknown parameter: want %s", name, strings.Join(names, ", "))
}

// decodeValue decodes one value. understood is nil for a value equivalent to a missing one.
func (f *field) decodeValue(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	if into.Type() == reflect.TypeFor[json.RawMessage]() {
		return f.decodeRawJSON(raw, into)
	}
	if into.Kind() == reflect.Pointer {
		value := reflect.New(into.Type().Elem())
		if normalized, problem = f.decodeValue(raw, value.Elem()); problem == "" && normalized != nil {
			into.Set(value)
		}
		return normalized, problem
	}
	switch into.Kind() { //nolint:exhaustive // mustParameterType refuses the others
	case reflect.Bool:
		if s := string(raw); s != "true" && s != "false" {
			return nil, f.describeTypeMismatch(raw)
		}
		into.SetBool(string(raw) == "true")
		return into.Bool(), ""
	case reflect.Int32, reflect.Int64:
		return f.decodeInteger(raw, into)
	case reflect.String:
		return f.decodeString(raw, into)
	case reflect.Struct: // metav1.Duration
		return f.decodeDuration(raw, into)
	}
	return f.decodeListOrMap(raw, into)
}

func (f *field) decodeInteger(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || into.OverflowInt(n) {
		return nil, f.describeTypeMismatch(raw)
	}
	if f.Minimum != nil && n < *f.Minimum {
		return nil, fmt.Sprintf("must be at least %d, is %d", *f.Minimum, n)
	}
	if f.Maximum != nil && n > *f.Maximum {
		return nil, fmt.Sprintf("must be at most %d, is %d", *f.Maximum, n)
	}
	into.SetInt(n)
	return n, ""
}

func (f *field) decodeString(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, f.describeTypeMismatch(raw)
	}
	if s == "" && f.Format != formatLabelValue {
		if f.Required {
			return nil, "must not be empty"
		}
		if f.Enum == nil {
			return nil, "" // equivalent to a missing value
		}
	}
	if f.Enum != nil && !slices.Contains(f.Enum, s) {
		return nil, fmt.Sprintf("must be one of %s, is %q", strings.Join(f.Enum, ", "), TruncateText(s, 64))
	}
	s, problem = f.checkFieldFormat(f.Format, s)
	if problem != "" {
		return nil, problem
	}
	into.SetString(s)
	return s, ""
}

func (f *field) decodeDuration(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	var d metav1.Duration
	if raw[0] != '"' || json.Unmarshal(raw, &d) != nil || d.Duration < 0 {
		return nil, f.describeTypeMismatch(raw)
	}
	into.Set(reflect.ValueOf(d))
	return d.Duration.String(), ""
}

// decodeRawJSON stores an object or an array in canonical form.
func (f *field) decodeRawJSON(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	if fits := raw[0] == '[' && (f.Type == typeArray || f.either) || raw[0] == '{' && (f.Type == typeObject || f.either); !fits {
		return nil, f.describeTypeMismatch(raw)
	}
	normal, err := canonicalJSON(raw)
	if err != nil {
		return nil, f.describeTypeMismatch(raw)
	}
	into.SetBytes(normal)
	return json.RawMessage(normal), ""
}

// decodeListOrMap decodes lists and maps.
func (f *field) decodeListOrMap(raw json.RawMessage, into reflect.Value) (normalized any, problem string) {
	if open := map[reflect.Kind]byte{reflect.Slice: '[', reflect.Map: '{'}[into.Kind()]; raw[0] != open {
		return nil, f.describeTypeMismatch(raw)
	}
	value := reflect.New(into.Type())
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := decoder.Decode(value.Interface()); err != nil {
		return nil, "must be " + describeListOrMapType(into.Type())
	}
	if problem = f.checkAndNormalizeMembers(raw, value.Elem()); problem != "" {
		return nil, problem
	}
	into.Set(value.Elem())
	return value.Elem().Interface(), ""
}

// checkAndNormalizeMembers checks the members of a list or map. It rejects null members where the type does not
// allow them, because Go would decode them as "".
func (f *field) checkAndNormalizeMembers(raw json.RawMessage, value reflect.Value) (problem string) {
	if value.Kind() == reflect.Slice {
		return f.checkAndNormalizeList(raw, value)
	}
	text := value.Type().Elem().Kind() == reflect.String
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // it was read once
	for _, key := range value.MapKeys() {
		if text && string(members[key.String()]) == "null" {
			return "must be " + describeListOrMapType(value.Type())
		}
		if _, problem := f.checkFieldFormat(f.keys, key.String()); problem != "" {
			return "key " + problem
		}
		if !text {
			continue
		}
		if _, problem := f.checkFieldFormat(f.Format, value.MapIndex(key).String()); problem != "" {
			return fmt.Sprintf("%q %s", TruncateText(key.String(), 64), problem)
		}
	}
	return ""
}

func (f *field) checkAndNormalizeList(raw json.RawMessage, value reflect.Value) (problem string) {
	var members []json.RawMessage
	_ = json.Unmarshal(raw, &members) // it was read once
	for i := range value.Len() {
		if string(members[i]) == "null" {
			return "must be " + describeListOrMapType(value.Type())
		}
		if value.Type().Elem().Kind() != reflect.String {
			continue
		}
		normal, problem := f.checkFieldFormat(f.Format, value.Index(i).String())
		if problem != "" {
			return fmt.Sprintf("[%d] %s", i, problem)
		}
		value.Index(i).SetString(normal)
	}
	return ""
}

func (f *field) checkFieldFormat(format, value string) (normalized, problem string) {
	normalized, problem = checkFormat(format, value)
	if problem != "" {
		return "", fmt.Sprintf("%s, is %q", problem, TruncateText(value, 64))
	}
	return normalized, ""
}

// describeTypeMismatch describes the expected and actual type of a parameter. It does not repeat text given
// in place of an object or a list, which may contain a secret.
func (f *field) describeTypeMismatch(raw json.RawMessage) string {
	is := describeJSONValue(raw)
	if raw[0] == '"' && (f.Type == typeObject || f.Type == typeArray) {
		is = "a string"
	}
	return fmt.Sprintf("must be %s, is %s", describeType(f.Type), is)
}
