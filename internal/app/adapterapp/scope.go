package adapterapp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/cel-go/cel"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// maxSecret limits a secret in bytes.
const maxSecret = 64 << 10

// A scope holds the variables of the expressions for one evaluation. It is an activation of CEL.
type scope struct {
	vars      map[string]any
	secret    func(name string) (string, error)
	secretErr error // of the last secret that could not be read
}

// newScope returns the variables of a resource.
func newScope(r adapter.Resource, secret func(name string) (string, error)) (*scope, error) {
	text, err := json.Marshal(r.Resource)
	if err != nil {
		return nil, fmt.Errorf("encode resource: %w", err)
	}
	served, _ := decodeJSONOrNil(text).(map[string]any)
	object := func(name string) any {
		if m, ok := served[name].(map[string]any); ok {
			return m
		}
		return map[string]any{}
	}
	labels := r.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	available, reports := []string{}, map[string]any{}
	for _, s := range r.Reports {
		if s.ObservedGeneration != r.Generation {
			continue
		}
		conditions := map[string]any{}
		for _, c := range s.Conditions {
			conditions[c.Type] = string(c.Status)
		}
		reports[s.Adapter] = map[string]any{"conditions": conditions, "data": decodeJSONOrNil(s.Data)}
		if conditions[v1.ConditionAvailable] == string(v1.ConditionTrue) {
			available = append(available, s.Adapter)
		}
	}
	return &scope{secret: secret, vars: map[string]any{
		"id": r.ID, "name": r.Name, "kind": r.Kind, "spec": object("spec"), "status": object("status"), "labels": labels,
		"generation": r.Generation, "deleted": r.Deleting(), "available": available, "reports": reports, "resource": served,
	}}, nil
}

// ResolveName implements cel.Activation. A secret is read when an expression uses it.
func (s *scope) ResolveName(name string) (any, bool) {
	if secret, ok := strings.CutPrefix(name, secretPrefix); ok {
		text, err := s.secret(secret)
		if err != nil {
			s.secretErr = fmt.Errorf("read secret %q: %w", secret, err)
			return nil, false
		}
		return text, true
	}
	v, ok := s.vars[name]
	return v, ok
}

// Parent implements cel.Activation.
func (s *scope) Parent() cel.Activation { return nil }

// markPermanentUnlessSecretFailed marks an error of an evaluation, unless a secret could not be read.
func (s *scope) markPermanentUnlessSecretFailed(err error) error {
	if err == nil || s.secretErr != nil {
		return err
	}
	return adapter.Permanent(err)
}

// newSecretReader returns a function that reads the secrets of a file.
func newSecretReader(secrets map[string]Secret, lookupEnv func(string) (string, bool)) func(name string) (string, error) {
	return func(name string) (string, error) {
		from := secrets[name]
		if from.Env != "" {
			text, ok := lookupEnv(from.Env)
			if !ok || text == "" {
				return "", fmt.Errorf("the variable %s is not set", from.Env)
			}
			return text, nil
		}
		f, err := os.Open(from.File)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }() // only read
		text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		switch {
		case err != nil:
			return "", err
		case len(text) > maxSecret:
			return "", fmt.Errorf("the file %s exceeds %d bytes", from.File, maxSecret)
		}
		secret := strings.TrimRight(string(text), "\r\n")
		if secret == "" {
			return "", fmt.Errorf("the file %s is empty", from.File)
		}
		return secret, nil
	}
}

// decodeJSONOrNil returns a value of JSON with integers as int64, or nil for anything else.
func decodeJSONOrNil(text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil || dec.More() {
		return nil
	}
	return convertJSONNumbers(v)
}

func convertJSONNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // an infinity where the number is too large
		return f
	case []any:
		for i := range v {
			v[i] = convertJSONNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = convertJSONNumbers(v[name])
		}
	}
	return v
}
