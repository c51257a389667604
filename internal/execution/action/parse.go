package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// maxParameters limits the size of parameters.
const maxParameters = 16 << 10

// A parseInput is the unparsed request for an action.
type parseInput struct {
	asked      string // requested name or alias
	parameters map[string]json.RawMessage
	spec       *v1alpha1.KubernetesExecutionSpec // nil when a plan is read again
}

// Parse finds the requested action and reads its parameters, either flat or as the single member of
// a union ({"scaleDeployment": {...}}). It does not contact a cluster. The error is an
// *UnknownError or an *InvalidError.
func Parse(spec *v1alpha1.KubernetesExecutionSpec) (Request, error) {
	a, ok := Find(spec.Action)
	if !ok {
		return Request{}, &UnknownError{Name: TruncateText(spec.Action, 64), Nearest: nearestName(spec.Action, namesAndAliases())}
	}
	var raw json.RawMessage
	if spec.Parameters != nil {
		raw = spec.Parameters.Raw
	}
	parameters, problem := decodeAndUnwrapParameters(a, raw)
	if problem != "" {
		return Request{}, &InvalidError{Action: a.Name, Problems: []string{problem}}
	}
	r, problems := a.parseRequest(parseInput{asked: spec.Action, parameters: parameters, spec: spec})
	if spec.Timeout != nil && a.MaxTimeout > 0 && spec.Timeout.Duration > a.MaxTimeout {
		problems = append(problems, fmt.Sprintf("timeout: must be at most %s, is %s", a.MaxTimeout, spec.Timeout.Duration))
	}
	if len(problems) > 0 {
		return Request{}, &InvalidError{Action: a.Name, Problems: problems}
	}
	if spec.Target != nil {
		r.Target.UID, r.Target.ResourceVersion = spec.Target.UID, spec.Target.ResourceVersion
	}
	return r, nil
}

func (a *Action) parseRequest(q parseInput) (r Request, problems []string) {
	parsed, normal, target, problems := a.kind.parseParameters(q)
	return Request{Action: a, Parameters: normal, Target: target, parsed: parsed}, problems
}

// decodeAndUnwrapParameters returns the members of an object, and those of the single member of a union.
func decodeAndUnwrapParameters(a *Action, raw json.RawMessage) (members map[string]json.RawMessage, problem string) {
	if len(raw) > maxParameters {
		return nil, fmt.Sprintf("parameters: must be at most %d bytes, are %d", maxParameters, len(raw))
	}
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return map[string]json.RawMessage{}, ""
	}
	members, err := decodeObject(raw)
	if err != nil {
		return nil, "parameters: must be an object"
	}
	if len(members) != 1 {
		return members, ""
	}
	for name, value := range members {
		of, ok := findActionByCamelCaseName(name)
		if !ok || slices.ContainsFunc(a.schema, func(p Parameter) bool { return p.Name == name }) {
			continue
		}
		if of != a.Name {
			return nil, fmt.Sprintf("parameters: belong to %s", of)
		}
		if members, err = decodeObject(value); err != nil {
			return nil, name + ": must be an object"
		}
	}
	return members, ""
}

// findActionByCamelCaseName returns the action with the given name in camel case.
func findActionByCamelCaseName(name string) (action string, found bool) {
	for _, a := range Catalogue() {
		for _, other := range append([]string{a.Name}, a.Aliases...) {
			if snakeToCamelCase(other) == name {
				return a.Name, true
			}
		}
	}
	return "", false
}

// snakeToCamelCase converts scale_deployment to scaleDeployment.
func snakeToCamelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// decodeObject decodes exactly one object. It removes white space around values.
func decodeObject(raw json.RawMessage) (map[string]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	var members map[string]json.RawMessage
	if err := decoder.Decode(&members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, fmt.Errorf("is null")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("has trailing data")
	}
	for name, value := range members {
		members[name] = bytes.TrimSpace(value)
	}
	return members, nil
}

// fillMissingTargetParameters fills missing target parameters from the fields of the execution.
func (q parseInput) fillMissingTargetParameters(fields []field) {
	if q.spec == nil {
		return
	}
	for _, f := range fields {
		if v, given := q.parameters[f.Name]; given && string(v) != "null" && string(v) != `""` {
			continue
		}
		for _, value := range q.targetValuesInSpec(f.target) {
			if value != "" {
				text, err := json.Marshal(value)
				if err == nil {
					q.parameters[f.Name] = text
				}
				break
			}
		}
	}
}

// targetValuesInSpec returns the target values in the spec of the execution.
func (q parseInput) targetValuesInSpec(targetPart string) []string {
	var t v1alpha1.Target
	if q.spec.Target != nil {
		t = *q.spec.Target
	}
	switch targetPart {
	case targetName:
		return []string{q.spec.ResourceName, t.Name}
	case targetNamespace:
		return []string{q.spec.TargetNamespace, t.Namespace}
	case targetKind:
		return []string{t.Kind}
	}
	return nil
}

// targetConflicts lists the contradictions between the target of the spec and that of the parameters.
func (q parseInput) targetConflicts(t v1alpha1.Target) []string {
	if q.spec == nil || t.Kind == "" {
		return nil
	}
	var problems []string
	differ := func(where, says, is string) {
		if says != "" && says != is {
			problems = append(problems, fmt.Sprintf("%s: is %q, but the parameters name %q", where, TruncateText(says, 64), is))
		}
	}
	differ("targetNamespace", q.spec.TargetNamespace, t.Namespace)
	differ("resourceName", q.spec.ResourceName, t.Name)
	if says := q.spec.Target; says != nil {
		differ("target.apiVersion", says.APIVersion, t.APIVersion)
		differ("target.kind", says.Kind, t.Kind)
		differ("target.namespace", says.Namespace, t.Namespace)
		differ("target.name", says.Name, t.Name)
	}
	return problems
}

// canonicalJSON returns a JSON value in the canonical form used for hashes: sorted, with numbers as the
// API server stores them.
func canonicalJSON(raw []byte) ([]byte, error) {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// TruncateText limits an external text to maxBytes bytes and marks the cut.
func TruncateText(s string, maxBytes int) string {
	const mark = "…"
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, maxBytes-len(mark))], "") + mark
}

// nearestName returns the known name closest to a misspelt one, or an empty string.
func nearestName(name string, known []string) string {
	const longest = 64
	if len(name) > longest {
		return ""
	}
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance returns the number of letters to change, add or remove.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
