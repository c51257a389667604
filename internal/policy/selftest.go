package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// runPolicyTests runs the tests of a set like `opa test`, and returns their number. The error names the
// tests that failed or did not end.
func runPolicyTests(ctx context.Context, files map[string]string, shape *inputShape) (count int, err error) {
	caps := newPolicyCapabilities()
	modules, err := parseModules(files, caps)
	if err != nil {
		return 0, err
	}
	runner := tester.NewRunner().
		SetCompiler(newCompiler(caps, shape).WithStrict(false)).
		SetModules(modules).
		SetTimeout(24 * time.Hour).
		RaiseBuiltinErrors(true)
	results, err := runner.RunTests(ctx, nil)
	if err != nil {
		return 0, shortenCompileErrors(err)
	}
	n := 0
	var failed []error
	for r := range results {
		n++
		switch {
		case topdown.IsCancel(r.Error):
			failed = append(failed, fmt.Errorf("%s: %s.%s does not end", r.Location, r.Package, r.Name))
		case r.Error != nil:
			failed = append(failed, fmt.Errorf("%s: %s.%s: %w", r.Location, r.Package, r.Name, shortenCompileErrors(r.Error)))
		case r.Fail:
			failed = append(failed, fmt.Errorf("%s: %s.%s fails", r.Location, r.Package, r.Name))
		}
	}
	if ctx.Err() != nil && len(failed) == 0 {
		failed = append(failed, errors.New("some tests did not start"))
	}
	// The results are in the order of completion.
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(failed) > maxErrors {
		failed = append(failed[:maxErrors], fmt.Errorf("and %d more", len(failed)-maxErrors))
	}
	return n, errors.Join(failed...)
}

// A canary is a request that every set must deny.
type canary struct {
	name string
	// set maps paths in ExamplePolicyInput to other values; nil means an empty input.
	set map[string]any
}

func listCanaries() []canary {
	protected := func(namespace string) map[string]any {
		return map[string]any{
			"target.namespace": namespace, "namespace.name": namespace, "request.parameters.namespace": namespace,
			"target.protected": true, "namespace.labels": map[string]any{},
		}
	}
	return []canary{
		{name: "an empty input"},
		{name: "an action on kube-system", set: protected("kube-system")},
		{name: "an action on kube-public", set: protected("kube-public")},
		{name: "an action on kube-node-lease", set: protected("kube-node-lease")},
		{name: "an action on an object with the protected label", set: map[string]any{
			"target.protected": true, "target.labels": map[string]any{"kubernaut.io/protected": "true"},
		}},
		{name: "a drain of a control-plane node", set: map[string]any{
			"request.action": "drain_node", "request.parameters": map[string]any{"node": "cp-0"},
			"action.name": "drain_node", "action.risk": "high", "action.scope": "Cluster", "action.reversible": true,
			"target.apiVersion": "v1", "target.kind": "Node", "target.namespace": "", "target.name": "cp-0", "target.protected": true,
			"target.labels":  map[string]any{"node-role.kubernetes.io/control-plane": ""},
			"namespace.name": "", "namespace.labels": map[string]any{},
		}},
		{name: "an unknown action", set: map[string]any{
			"request.action": "no_such_action", "action.name": "", "action.risk": "", "action.requiredPermissions": []any{},
		}},
		{name: "an action with an unknown risk", set: map[string]any{"action.risk": "boundless"}},
		{name: "a service account without the required permissions", set: map[string]any{"serviceAccount.permissionsOk": false}},
		{name: "a change of an object without a name", set: map[string]any{
			"target.name": "", "target.uid": "", "target.kind": "", "request.parameters": map[string]any{},
		}},
	}
}

// checkCanariesDenied evaluates requests that every set must deny. Each also needs a decision: a set that
// defines nothing is broken, which differs from denying.
func (s *Set) checkCanariesDenied(ctx context.Context) error {
	var problems []error
	for _, c := range listCanaries() {
		input, err := c.buildInput()
		if err != nil {
			return err
		}
		d, err := s.evaluateDecision(ctx, input, time.Unix(0, 0), 0)
		switch {
		case err != nil:
			return fmt.Errorf("self-test with %s: no decision: %w", c.name, err) // usually the others have none either
		case d.Allow:
			problems = append(problems, fmt.Errorf("self-test: %s is allowed, and every policy set must deny it", c.name))
		}
	}
	return errors.Join(problems...)
}

func (c canary) buildInput() (ast.Value, error) {
	if c.set == nil {
		return ast.NewObject(), nil
	}
	var doc map[string]any
	if err := json.Unmarshal(exampleInput, &doc); err != nil {
		return nil, fmt.Errorf("read example: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.set)) {
		at := doc
		keys := strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			sub, ok := at[key].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("the example lacks %s", path)
			}
			at = sub
		}
		at[keys[len(keys)-1]] = c.set[path]
	}
	return ast.InterfaceToValue(doc)
}
