package sentinelconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// The limits of message data, which are those of a configuration file.
const (
	maxNodes = 10_000 // total number of values
	maxDepth = 32     // depth of nested mappings
	maxKey   = 512    // bytes of a key
)

// translateMessageData reads the data of the cloud events. Its keys keep the order of
// the JSON, which is alphabetical if the API server wrote it.
func (t *translation) translateMessageData(raw *apiextensionsv1.JSON) settings.OrderedMap {
	const field = "spec.messageData"
	if raw == nil || len(bytes.TrimSpace(raw.Raw)) == 0 || string(bytes.TrimSpace(raw.Raw)) == "null" {
		return nil
	}
	d := &dataReader{t: t, json: jsontext.NewDecoder(bytes.NewReader(raw.Raw))}
	if d.json.PeekKind() != jsontext.KindBeginObject {
		t.addFieldErrorf(field, "must be a mapping")
		return nil
	}
	data, err := d.readMapping(field, 1)
	if err == nil {
		if _, err = d.json.ReadToken(); errors.Is(err, io.EOF) {
			return data
		}
	}
	switch {
	case errors.Is(err, errTooDeep), errors.Is(err, errTooMany):
		t.addFieldErrorf(field, "%w", err)
	case err == nil:
		t.addFieldErrorf(field, "is not valid JSON: trailing data after the mapping")
	default:
		t.addFieldErrorf(field, "is not valid JSON: %w", err)
	}
	return nil
}

// A dataReader reads nested mappings of texts.
type dataReader struct {
	t     *translation
	json  *jsontext.Decoder
	nodes int
}

var (
	errTooDeep = fmt.Errorf("nesting is deeper than %d levels", maxDepth)
	errTooMany = fmt.Errorf("has more than %d values", maxNodes)
)

// readMapping reads one mapping. An error means invalid JSON; errors in a value are recorded.
func (d *dataReader) readMapping(path string, depth int) (settings.OrderedMap, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if _, err := d.json.ReadToken(); err != nil {
		return nil, err
	}
	out := settings.OrderedMap{}
	for d.json.PeekKind() != jsontext.KindEndObject {
		name, err := d.json.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if d.nodes++; d.nodes > maxNodes {
			return nil, errTooMany
		}
		e := settings.MapEntry{Key: key}
		at := path + "." + key
		if len(key) > maxKey {
			d.t.addFieldErrorf(path, "has a key of more than %d bytes", maxKey)
		}
		switch d.json.PeekKind() {
		case jsontext.KindBeginObject:
			e.Map, err = d.readMapping(at, depth+1)
		case jsontext.KindString, jsontext.KindNumber, jsontext.KindTrue, jsontext.KindFalse:
			var value jsontext.Token
			if value, err = d.json.ReadToken(); err == nil {
				e.Value = value.String()
			}
		case jsontext.KindNull, jsontext.KindBeginArray:
			d.t.addFieldErrorf(at, "must be a string or a mapping")
			err = d.json.SkipValue()
		case jsontext.KindInvalid, jsontext.KindEndObject, jsontext.KindEndArray:
			_, err = d.json.ReadToken() // returns the error of the token
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	_, err := d.json.ReadToken()
	return out, err
}
