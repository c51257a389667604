package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ParseLabelChanges reads label changes: key=value sets a label, key- removes it.
func ParseLabelChanges(changes []string) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	seen := map[string]bool{}
	for _, text := range changes {
		key, value, sets := strings.Cut(text, "=")
		if !sets {
			var removes bool
			if key, removes = strings.CutSuffix(text, "-"); !removes {
				return nil, nil, fmt.Errorf("%q is not key=value (set a label) or key- (remove a label)", text)
			}
			remove = append(remove, key)
		} else {
			set[key] = value
		}
		if key == "" || seen[key] {
			return nil, nil, fmt.Errorf("%q: a label needs a key and can be given only once", text)
		}
		seen[key] = true
	}
	return set, remove, nil
}

// CheckPatchIsObject rejects a patch that is not a JSON object, because it would replace the whole spec.
func CheckPatchIsObject(patch string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(patch), &fields); err != nil || fields == nil {
		return errors.New("not a JSON object such as {\"key\": \"value\"}")
	}
	return nil
}

// ApplyMergePatch applies a JSON merge patch (RFC 7386). Values outside the patch keep their text.
func ApplyMergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	changes, ok, err := decodeObject(patch)
	if err != nil {
		return nil, err
	}
	if !ok {
		return patch, nil
	}
	// A target that is not an object counts as an empty object.
	fields, _, err := decodeObject(target)
	if err != nil {
		return nil, err
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	for key, value := range changes {
		if string(bytes.TrimSpace(value)) == "null" {
			delete(fields, key)
			continue
		}
		if fields[key], err = ApplyMergePatch(fields[key], value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

func decodeObject(raw json.RawMessage) (fields map[string]json.RawMessage, ok bool, err error) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || text[0] != '{' {
		return nil, false, nil
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, false, fmt.Errorf("merge the spec: %w", err)
	}
	return fields, true, nil
}
