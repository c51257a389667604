package action

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// The parts of the target that a parameter can name.
const (
	targetName      = "name"
	targetNamespace = "namespace"
	targetKind      = "kind"
)

// The values of Parameter.Type.
const (
	typeString   = "string"
	typeInteger  = "integer"
	typeBoolean  = "boolean"
	typeObject   = "object"
	typeArray    = "array"
	typeQuantity = "quantity"
	typeDuration = "duration"
)

// A field is a parameter with its location in the struct.
type field struct {
	Parameter

	index  int
	target string // targetName, targetNamespace, targetKind; empty means none
	keys   string // format of a map's keys
	either bool   // for json.RawMessage: an object or an array
}

// mustParseFieldTags reads the tags of a struct.
func mustParseFieldTags(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		p := Parameter{
			Name:     f.Tag.Get("json"),
			Required: f.Tag.Get("required") == "true",
			Doc:      f.Tag.Get("doc"),
			Format:   f.Tag.Get("format"),
			Minimum:  mustParseBoundTag(f, "min"),
			Maximum:  mustParseBoundTag(f, "max"),
		}
		if p.Name == "" || strings.Contains(p.Name, ",") || p.Doc == "" {
			panic(fmt.Sprintf("parameter %s.%s needs a json name and a doc", t, f.Name))
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			p.Enum = strings.Split(enum, ",")
		}
		p.Type = mustParameterType(f, p.Format)
		if value, ok := f.Tag.Lookup("default"); ok {
			p.Default = defaultAsJSON(p.Type, value)
		}
		made := field{Parameter: p, index: i, target: f.Tag.Get("target"), keys: f.Tag.Get("keys"), either: f.Tag.Get("type") == "either"}
		if p.Default != "" {
			if _, problem := made.decodeValue(json.RawMessage(p.Default), reflect.New(f.Type).Elem()); problem != "" {
				panic(fmt.Sprintf("default of parameter %s.%s %s", t, f.Name, problem))
			}
		}
		fields = append(fields, made)
	}
	return fields
}

func mustParseBoundTag(f reflect.StructField, tag string) *int64 {
	text, ok := f.Tag.Lookup(tag)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s of parameter %s: %v", tag, f.Name, err))
	}
	return &n
}

// mustParameterType returns the documented type of a parameter.
func mustParameterType(f reflect.StructField, format string) string {
	t := f.Type
	if t == reflect.TypeFor[json.RawMessage]() {
		if f.Tag.Get("type") == typeArray {
			return typeArray
		}
		return typeObject
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return typeDuration
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the others are no parameters
	case reflect.String:
		switch format {
		case formatQuantity, formatQuantityOrNone:
			return typeQuantity
		case formatDuration:
			return typeDuration
		}
		return typeString
	case reflect.Bool:
		return typeBoolean
	case reflect.Int32, reflect.Int64:
		return typeInteger
	case reflect.Slice:
		return typeArray
	case reflect.Map:
		return typeObject
	}
	panic(fmt.Sprintf("parameter %s has the type %s", f.Name, f.Type))
}

// defaultAsJSON returns a default as JSON.
func defaultAsJSON(kind, value string) string {
	switch kind {
	case typeString, typeQuantity, typeDuration:
		return strconv.Quote(value)
	}
	return value
}

// describeType returns a type with its article.
func describeType(kind string) string {
	switch kind {
	case typeInteger:
		return "an integer"
	case typeObject:
		return "an object"
	case typeArray:
		return "a list"
	case typeBoolean:
		return "true or false"
	case typeQuantity:
		return "a quantity, such as \"500m\" or \"2Gi\""
	case typeDuration:
		return "a duration, such as \"90s\" or \"5m\""
	}
	return "a " + kind
}

func describeListOrMapType(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[[]string]():
		return "a list of strings"
	case reflect.TypeFor[map[string]string]():
		return "an object whose values are strings"
	case reflect.TypeFor[map[string]*string]():
		return "an object whose values are strings or null"
	}
	if t.Kind() == reflect.Slice {
		return "a list of objects"
	}
	return "an object"
}

// describeJSONValue describes a JSON value in a few words.
func describeJSONValue(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "the string " + TruncateText(string(raw), 64)
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return TruncateText(string(raw), 64)
}

// targetFromTags returns the target named by the target tags.
func targetFromTags(fields []field, p reflect.Value, kinds []string) v1alpha1.Target {
	var t v1alpha1.Target
	if len(kinds) > 0 {
		t.Kind = kinds[0]
	}
	for _, f := range fields {
		value := p.Field(f.index)
		if f.target == "" || value.Kind() != reflect.String {
			continue
		}
		switch f.target {
		case targetName:
			t.Name = value.String()
		case targetNamespace:
			t.Namespace = value.String()
		case targetKind:
			t.Kind = value.String()
		}
	}
	return t
}
