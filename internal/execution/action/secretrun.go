package action

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// digestRounds slows down guessing a value from its digest, because many people can read plans.
	digestRounds = 50_000
	digestBytes  = 16
)

// snapshotAndUpdateSecret reads the new values, stores the previous ones and sets the new ones, if all are as
// planned.
func snapshotAndUpdateSecret(ctx context.Context, w *attemptState, p *secretParameters) error {
	changes, _ := parseSecretChanges(p.DataFrom)
	expected := expectation{values: func(live *unstructured.Unstructured) map[string]any { return secretDigests(changes, live) }}
	live, done, err := w.readAndCheckTarget(ctx, expected)
	if err != nil {
		return err
	}
	if done {
		w.recordAlreadyDone(live, expected, "patched")
		return nil
	}
	if len(w.plan.Steps) != 2 { // whatever the source of the plan
		return newHalt(CodeInvalid, "the plan lacks the Secret for the previous values")
	}
	patch := w.plan.Steps[1]
	values, err := readAndVerifyNewSecretValues(ctx, w, changes, live)
	if err != nil {
		return err
	}
	data := make(map[string]any, len(changes))
	for key, value := range values {
		data[key] = nil
		if value != nil {
			data[key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	if patch, err = withJSONBody(patch, addMarker(map[string]any{"data": data}, w.run.Subject)); err != nil {
		return newHalt(CodeInvalid, "the new values of Secret %s cannot be written", p.Secret)
	}
	keep, err := snapshotStepWithValues(w.plan.Steps[0], changes, live)
	if err != nil {
		return err
	}
	if err = w.sendStepToOtherObject(ctx, keep, ""); err != nil {
		return err
	}
	return w.sendStepToTargetWithRetry(ctx, expected, live, patch, "patched")
}

// readAndVerifyNewSecretValues returns the new values if they are those of the plan.
func readAndVerifyNewSecretValues(
	ctx context.Context,
	w *attemptState,
	changes []secretChange,
	live *unstructured.Unstructured,
) (map[string][]byte, error) {
	namespace := w.plan.Steps[0].Namespace // namespace of the execution, where the snapshot is stored
	values, err := readNewSecretValues(ctx, func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		return w.client.getObjectWithRetry(ctx, v1alpha1.Target{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name})
	}, changes, live.GetUID())
	if not, ok := errors.AsType[*RefusedError](err); ok {
		return nil, newHalt(CodeGuard, "%s", not.Message)
	}
	if err != nil {
		return nil, toHalt("read the new values", err)
	}
	var expected map[string]any
	if w.plan.Rollback != nil {
		expected = decodeValues(w.plan.Rollback.ExpectedCurrentValues)
	}
	for _, change := range changes {
		if digestSecretValue(values[change.key], live.GetUID(), change.key) != expected[dataFieldName(change.key)] {
			return nil, newHalt(CodeGuard, "the new value of %q differs from the planned one: Secret %s has changed", change.key, change.source)
		}
	}
	return values, nil
}

// newEmptySnapshotSecret returns the Secret that keeps the previous values, without the values. It is
// deleted with its execution.
func newEmptySnapshotSecret(s Subject, live *unstructured.Unstructured) map[string]any {
	return addMarker(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "immutable": true,
		"metadata": map[string]any{
			"name": snapshotName(s.UID), "namespace": s.Namespace,
			"labels": map[string]any{LabelSnapshotOf: string(live.GetUID())},
			"ownerReferences": []any{map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "KubernetesExecution", "name": s.Name, "uid": string(s.UID),
			}},
		},
	}, s)
}

// snapshotStepWithValues returns the step that stores the previous values, with the values.
func snapshotStepWithValues(step v1alpha1.PlanStep, changes []secretChange, live *unstructured.Unstructured) (v1alpha1.PlanStep, error) {
	object, err := decodeStepObject(step)
	if err != nil {
		return step, err
	}
	data := map[string]any{}
	for _, change := range changes {
		if value, ok := decodeSecretValue(live, change.key); ok {
			data[change.key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	object.Object["data"] = data
	if step, err = withJSONBody(step, object.Object); err != nil {
		return step, newHalt(CodeInvalid, "back up the previous values")
	}
	return step, nil
}

// snapshotName returns the name of the Secret that keeps values overwritten by an execution.
func snapshotName(execution types.UID) string {
	sum := sha256.Sum256([]byte(execution))
	return "kx-" + hex.EncodeToString(sum[:8]) + "-snapshot"
}

func dataFieldName(key string) string { return "data." + key }

// secretDigests returns the digests of the changing keys; nil marks a missing key.
func secretDigests(changes []secretChange, live *unstructured.Unstructured) map[string]any {
	fields := make(map[string]any, len(changes))
	for _, change := range changes {
		value, _ := decodeSecretValue(live, change.key)
		fields[dataFieldName(change.key)] = digestSecretValue(value, live.GetUID(), change.key)
	}
	return fields
}

// digestSecretValue returns the public digest of a value, or nil without one. Equal values of other Secrets
// or keys have different digests.
func digestSecretValue(value []byte, target types.UID, key string) any {
	if value == nil {
		return nil
	}
	sum, err := pbkdf2.Key(sha256.New, string(value), []byte(string(target)+"/"+key), digestRounds, digestBytes)
	if err != nil { // unsupported number of bytes or rounds
		return "unknown"
	}
	return "pbkdf2:" + hex.EncodeToString(sum)
}

// decodeSecretValue returns the value of a key. An empty value is not nil.
func decodeSecretValue(secret *unstructured.Unstructured, key string) (value []byte, found bool) {
	text, ok, err := unstructured.NestedString(secret.Object, "data", key)
	if !ok || err != nil {
		return nil, false
	}
	value, err = base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, false
	}
	if value == nil {
		value = []byte{}
	}
	return value, true
}
