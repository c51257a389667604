package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// LabelSecretSource allows update_secret to take values from a Secret in the namespace of
	// executions, if it is "true". Without the label, any user with permission for update_secret
	// could read the other Secrets there.
	LabelSecretSource = "kubernaut.io/secret-source" //nolint:gosec // the name of a label

	// LabelSnapshotOf marks a Secret with previous values that update_secret keeps for the
	// rollback. It holds the UID of the Secret that the values belong to. They can be restored only
	// there.
	LabelSnapshotOf = "kubernaut.io/snapshot-of"

	// maxSecretKeys limits the number of digests, which are slow to compute.
	maxSecretKeys = 16
)

type secretParameters struct {
	Secret    string           `json:"secret" doc:"Name of the Secret." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string           `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	DataFrom  []map[string]any `json:"dataFrom" doc:"At most 16 keys to change: {key, secretKeyRef: {name, key}} copies the value from a Secret in the namespace of the executions with the label kubernaut.io/secret-source=true; {key, remove: true} removes the key. Other keys do not change. Values cannot be set inline." required:"true"`
}

func newUpdateSecretAction() *Action {
	return newAction(entry[secretParameters]{
		Action: Action{
			Name:    "update_secret",
			Summary: "Set or remove keys of a Secret, with values from Secrets in the namespace of the executions.",
			Kubectl: "kubectl patch secret NAME --patch-file=FILE",
			Kinds:   []string{"Secret"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "secrets", Verbs: []string{"get", "patch"}, Why: "back up the previous values for a rollback and set the new ones"},
				{Resource: "secrets", Verbs: []string{"get", "create"}, Executor: true, Why: "read the new values and back up the previous ones"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 0,
			Risk: RiskHigh, Idempotent: true, Reversible: true, Rollback: "update_secret",
		},
		check: func(p *secretParameters) []string {
			_, problems := parseSecretChanges(p.DataFrom)
			return problems
		},
		values: func(p *secretParameters, live *unstructured.Unstructured) map[string]any {
			changes, _ := parseSecretChanges(p.DataFrom)
			return secretDigests(changes, live)
		},
		draft: draftSecretUpdate,
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *secretParameters, r Run) Result {
			w := newAttempt(c, pl, r)
			return w.buildResult(snapshotAndUpdateSecret(ctx, w, p))
		},
	})
}

// A secretChange is the change of one key, with the source of its new value.
type secretChange struct {
	key          string
	source, from string // a Secret and its key; empty removes the key from the target
}

// parseSecretChanges parses dataFrom and returns its problems.
func parseSecretChanges(list []map[string]any) (changes []secretChange, problems []string) {
	if len(list) == 0 || len(list) > maxSecretKeys {
		problems = append(problems, fmt.Sprintf("dataFrom: must name 1 to %d keys, names %d", maxSecretKeys, len(list)))
	}
	seen := map[string]bool{}
	for i, item := range list {
		change, problem := parseSecretChange(item)
		if problem == "" && seen[change.key] {
			problem = fmt.Sprintf("has the key %q twice", change.key)
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("dataFrom[%d]: %s", i, problem))
		}
		seen[change.key] = true
		changes = append(changes, change)
	}
	slices.SortFunc(changes, func(a, b secretChange) int { return strings.Compare(a.key, b.key) })
	return changes, problems
}

// parseSecretChange parses one entry. Messages repeat only its names, because a malformed entry may
// contain a secret value.
func parseSecretChange(item map[string]any) (c secretChange, problem string) {
	const want = "must be {key, secretKeyRef: {name, key}} or {key, remove: true}; values cannot be set inline"
	var ok bool
	if c.key, ok = item["key"].(string); !ok || len(validation.IsConfigMapKey(c.key)) > 0 || len(item) != 2 {
		return secretChange{}, want
	}
	if remove, given := item["remove"]; given {
		if remove != true {
			return secretChange{}, want
		}
		return c, ""
	}
	ref, ok := item["secretKeyRef"].(map[string]any)
	if !ok || len(ref) != 2 {
		return secretChange{}, want
	}
	c.source, _ = ref["name"].(string)
	c.from, _ = ref["key"].(string)
	if len(validation.IsDNS1123Subdomain(c.source)) > 0 || len(validation.IsConfigMapKey(c.from)) > 0 {
		return secretChange{}, want
	}
	return c, ""
}

func draftSecretUpdate(ctx context.Context, c Client, s Subject, p *secretParameters, live *unstructured.Unstructured) (*draft, error) {
	if err := refuseUnchangeableSecret(live, s); err != nil {
		return nil, err
	}
	changes, _ := parseSecretChanges(p.DataFrom)
	values, err := readNewSecretValues(ctx, func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		return c.getObjectOnce(ctx, v1alpha1.Target{APIVersion: "v1", Kind: "Secret", Namespace: s.Namespace, Name: name})
	}, changes, live.GetUID())
	if err != nil {
		return nil, err
	}
	d := &draft{before: secretDigests(changes, live), after: map[string]any{}}
	for _, change := range changes {
		d.after[dataFieldName(change.key)] = digestSecretValue(values[change.key], live.GetUID(), change.key)
	}
	if len(describeDifferences(d.before, d.after)) == 0 {
		return d, nil
	}
	keys := make([]string, 0, len(changes))
	back := make([]any, 0, len(changes))
	for _, change := range changes {
		keys = append(keys, change.key)
		if d.before[dataFieldName(change.key)] == nil {
			back = append(back, map[string]any{"key": change.key, "remove": true})
			continue
		}
		back = append(back, map[string]any{"key": change.key, "secretKeyRef": map[string]any{"name": snapshotName(s.UID), "key": change.key}})
	}
	keep, err := newCreateStep(newEmptySnapshotSecret(s, live), fmt.Sprintf("back up the previous values of Secret %s/%s in Secret %s/%s", p.Namespace, p.Secret, s.Namespace, snapshotName(s.UID)))
	if err != nil {
		return nil, err
	}
	step, err := newStepWithoutBody(live, verbPatch, fmt.Sprintf("set %s of Secret %s/%s", joinFirstNames(keys), p.Namespace, p.Secret))
	if err != nil {
		return nil, err
	}
	// The bodies would contain secret values, which are filled in when they are sent.
	step.PatchType = string(types.MergePatchType)
	d.steps = []v1alpha1.PlanStep{keep, step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       "keys " + joinFirstNames(keys) + "; Pods that read them at start keep the old values until they restart",
	}
	d.rollback, err = newRollbackInfo(
		"update_secret",
		map[string]any{"secret": p.Secret, "namespace": p.Namespace, "dataFrom": back},
		"10s",
	)
	return d, err
}

// refuseUnchangeableSecret refuses Secrets that must not be changed, and executions without a place for the
// previous values.
func refuseUnchangeableSecret(live *unstructured.Unstructured, s Subject) error {
	if s.Namespace == "" || s.Name == "" || s.UID == "" {
		return newRefusal(v1alpha1.DetailInvalidTargetState, "update_secret needs the namespace of its execution, which is unknown")
	}
	if kind, _, _ := unstructured.NestedString(live.Object, "type"); kind == "kubernetes.io/service-account-token" {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"Secret %s/%s is a service account token, which Kubernetes manages",
			live.GetNamespace(),
			live.GetName(),
		)
	}
	return refuseImmutable(live)
}

// readNewSecretValues returns the new values by key; nil removes a key. A source must carry
// LabelSecretSource, or be a snapshot of the same Secret.
func readNewSecretValues(
	ctx context.Context,
	read func(ctx context.Context, name string) (*unstructured.Unstructured, error),
	changes []secretChange,
	snapshotOf types.UID,
) (map[string][]byte, error) {
	sources := map[string]*unstructured.Unstructured{}
	values := make(map[string][]byte, len(changes))
	for _, change := range changes {
		values[change.key] = nil
		if change.source == "" {
			continue
		}
		source, ok := sources[change.source]
		if !ok {
			var err error
			if source, err = read(ctx, change.source); apierrors.IsNotFound(err) {
				return nil, newRefusal(
					v1alpha1.DetailInvalidTargetState,
					"Secret %s with the new value of %q does not exist",
					change.source,
					change.key,
				)
			} else if err != nil {
				return nil, err
			}
			sources[change.source] = source
		}
		labels := source.GetLabels()
		if labels[LabelSecretSource] != "true" && labels[LabelSnapshotOf] != string(snapshotOf) {
			return nil, newRefusal(
				v1alpha1.DetailInvalidTargetState,
				"Secret %s cannot be used by update_secret: it lacks the label %s=true",
				change.source,
				LabelSecretSource,
			)
		}
		value, ok := decodeSecretValue(source, change.from)
		if !ok {
			return nil, newRefusal(
				v1alpha1.DetailInvalidTargetState,
				"Secret %s with the new value of %q has no key %q",
				change.source,
				change.key,
				change.from,
			)
		}
		values[change.key] = value
	}
	return values, nil
}
