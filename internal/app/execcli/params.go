package execcli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// MaxParameterFile limits the size of a file: objects of the API server are no larger.
const MaxParameterFile = 1 << 20

// ParameterReader reads action parameters such as replicas=5 from a command line, with the types of
// the catalogue. Stdin is the content of the file "-".
//
// It only parses values. The catalogue validates all parameters together.
type ParameterReader struct {
	Stdin io.Reader
}

// Read reads words such as replicas=5:
//
//	name=value     in the format of the parameter type; objects and lists as JSON
//	name=@FILE     the content of a file, which is JSON or YAML where the type
//	               is an object or a list; @- is standard input, @@ begins a
//	               value with @
//	name.key=text  one entry of an object, which is a text; name.key- is the
//	               entry with null, which takes it away
//	name=a name=b  the elements of a list
//
// File, unless it is empty, holds parameters as one object, in JSON or YAML.
// Words win over it.
func (r ParameterReader) Read(known []action.Parameter, file string, arguments []string) (json.RawMessage, error) {
	in := paramParser{
		ParameterReader: r,
		known:           known,
		all:             map[string]json.RawMessage{},
		given:           map[string]bool{},
	}
	if file != "" {
		docs, err := r.readDocuments(file)
		if err != nil {
			return nil, err
		}
		if len(docs) != 1 || json.Unmarshal(docs[0], &in.all) != nil || in.all == nil {
			return nil, fmt.Errorf("%s: parameters must be one object, for example {\"replicas\": 5}", file)
		}
	}
	var errs []error
	for _, word := range arguments {
		if err := in.parseArgument(word); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.Marshal(in.all)
}

// paramParser holds the parameters read so far.
type paramParser struct {
	ParameterReader

	known []action.Parameter         // the parameters of the action
	all   map[string]json.RawMessage // by name, of the file and of the arguments
	given map[string]bool            // by arguments: parameters, and entries of objects
}

// parseArgument adds one argument: name=value, name.key=value or name.key-.
func (r *paramParser) parseArgument(argument string) error {
	name, text, hasValue := strings.Cut(argument, "=")
	name, key, isEntry := strings.Cut(name, ".")
	if !hasValue { // only the removal of an entry has none
		key, isEntry = strings.CutSuffix(key, "-")
		if !isEntry || key == "" {
			return fmt.Errorf("invalid parameter %q: want name=value", argument)
		}
	}
	p, err := findParameter(r.known, name)
	if err != nil {
		return err
	}
	if isEntry {
		return r.setOrRemoveObjectEntry(p, key, text, hasValue)
	}
	if r.given[name] && p.Type != "array" {
		return fmt.Errorf("parameter %s is given twice; give it once", name)
	}
	raw, err := r.parseValue(p, text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if p.Type == "array" && r.given[name] {
		if raw, err = joinJSONArrays(r.all[name], raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	r.all[name] = raw
	r.given[name] = true
	return nil
}

// joinJSONArrays concatenates two lists.
func joinJSONArrays(one, other json.RawMessage) (json.RawMessage, error) {
	var list, more []json.RawMessage
	if err := errors.Join(json.Unmarshal(one, &list), json.Unmarshal(other, &more)); err != nil {
		return nil, err
	}
	return json.Marshal(append(list, more...))
}

// findParameter finds a parameter by name. The error lists the known ones.
func findParameter(list []action.Parameter, name string) (action.Parameter, error) {
	var names []string
	for _, p := range list {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	// Some actions take deployment=web for a kind and a name: the catalogue knows which.
	if slices.Contains(names, "kind") && slices.Contains([]string{"deployment", "statefulset", "daemonset"}, name) {
		return action.Parameter{Name: name, Type: "string"}, nil
	}
	if len(names) == 0 {
		return action.Parameter{}, fmt.Errorf("unknown parameter %q: the action has no parameters", name)
	}
	return action.Parameter{}, fmt.Errorf("unknown parameter %q: want %s", name, strings.Join(names, ", "))
}

// setOrRemoveObjectEntry sets one entry of an object, to null without a value.
func (r *paramParser) setOrRemoveObjectEntry(p action.Parameter, key, text string, hasValue bool) error {
	if p.Type != "object" {
		return fmt.Errorf("%s is not an object, so %q cannot be set", p.Name, key)
	}
	entry := p.Name + "." + key
	if r.given[p.Name] || r.given[entry] {
		return fmt.Errorf("parameter %s is given twice; give it once", entry)
	}
	r.given[entry] = true

	// The object with its entries so far.
	object := map[string]json.RawMessage{}
	if raw, ok := r.all[p.Name]; ok {
		if err := json.Unmarshal(raw, &object); err != nil {
			return fmt.Errorf("%s is not an object in the file", p.Name)
		}
	}
	value := json.RawMessage("null")
	if hasValue {
		content, err := r.readTextOrFile(text)
		if err != nil {
			return fmt.Errorf("%s: %w", entry, err)
		}
		if value, err = json.Marshal(content); err != nil {
			return fmt.Errorf("%s: %w", entry, err)
		}
	}
	object[key] = value
	raw, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("%s: %w", entry, err)
	}
	r.all[p.Name] = raw
	return nil
}

// parseValue converts a text to the type of a parameter.
func (r ParameterReader) parseValue(p action.Parameter, text string) (json.RawMessage, error) {
	if p.Type == "object" || p.Type == "array" {
		return r.parseObjectOrList(p.Type, text)
	}
	text, err := r.readTextOrFile(text)
	if err != nil {
		return nil, err
	}
	switch p.Type {
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not an integer", text)
		}
		return strconv.AppendInt(nil, n, 10), nil // without a sign and zeros that JSON rejects
	case "boolean":
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return json.RawMessage(text), nil
	}
	return json.Marshal(text)
}

// parseObjectOrList parses an object or a list from JSON or from a file. A single value for a list
// becomes its only element.
func (r ParameterReader) parseObjectOrList(kind, text string) (json.RawMessage, error) {
	docs := []json.RawMessage{json.RawMessage(text)}
	name, isFile := cutFileName(text)
	switch {
	case isFile:
		var err error
		if docs, err = r.readDocuments(name); err != nil {
			return nil, err
		}
	case kind == "array" && !json.Valid(docs[0]): // a text without quotes
		raw, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		docs[0] = raw
	}
	if kind == "object" {
		if len(docs) != 1 || !isJSONStartingWith(docs[0], '{') {
			return nil, errors.New(`write an object as JSON, for example {"a": 1}, or in a file as one document`)
		}
		return docs[0], nil
	}
	if len(docs) == 1 && isJSONStartingWith(docs[0], '[') {
		return docs[0], nil
	}
	return json.Marshal(docs) // the elements
}

func isJSONStartingWith(raw json.RawMessage, with byte) bool {
	return json.Valid(raw) && bytes.TrimSpace(raw)[0] == with
}

// readTextOrFile returns a value, or the content of the file that it names.
func (r ParameterReader) readTextOrFile(text string) (string, error) {
	name, isFile := cutFileName(text)
	if !isFile {
		if rest, ok := strings.CutPrefix(text, "@@"); ok {
			text = "@" + rest
		}
		return text, nil
	}
	content, err := r.readFileOrStdin(name)
	return string(content), err
}

// cutFileName returns the name of the file in a value such as @FILE. A value with @@ is a text.
func cutFileName(text string) (name string, isFile bool) {
	if strings.HasPrefix(text, "@@") {
		return "", false
	}
	return strings.CutPrefix(text, "@")
}

func (r ParameterReader) readFileOrStdin(name string) ([]byte, error) {
	in := r.Stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		in = f
	}
	if in == nil {
		in = strings.NewReader("")
	}
	text, err := io.ReadAll(io.LimitReader(in, MaxParameterFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > MaxParameterFile {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, MaxParameterFile)
	}
	return text, nil
}

// readDocuments returns the documents of a file as JSON.
func (r ParameterReader) readDocuments(name string) ([]json.RawMessage, error) {
	text, err := r.readFileOrStdin(name)
	if err != nil {
		return nil, err
	}
	var docs []json.RawMessage
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1)
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		raw = bytes.TrimSpace(raw)
		if len(raw) > 0 && string(raw) != "null" { // an empty document
			docs = append(docs, raw)
		}
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("read %s: the file is empty", name)
	}
	return docs, nil
}
