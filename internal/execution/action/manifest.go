package action

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// maxManifest limits an object, which a plan contains several times.
	maxManifest = 6 << 10

	statePresent = "present"
	stateAbsent  = "absent"
)

type manifestParameters struct {
	Manifest     json.RawMessage `json:"manifest" doc:"One namespaced object with the fields to set; at most 6144 bytes. Its metadata can have name, namespace, labels and annotations. Secrets are not allowed: use update_secret." required:"true"`
	FieldManager string          `json:"fieldManager" doc:"Field manager of server-side apply. Fields that an earlier manifest of the same manager set and this one omits are removed." default:"fleetloop-manifest" format:"dns-subdomain"`
	Force        bool            `json:"force" doc:"Take over fields of other managers. If false, such a conflict fails the action." default:"false"`
	State        string          `json:"state" doc:"Whether to apply the object (present) or to delete it (absent)." default:"present" enum:"present,absent"`
}

func newApplyManifestAction() *Action {
	return newAction(entry[manifestParameters]{
		Action: Action{
			Name:    "apply_manifest",
			Summary: "Apply one object with server-side apply, or delete it. Only kinds that the installation allows; none by default.",
			Kubectl: "kubectl apply --server-side -f FILE",
			Scope:   Namespaced,
			Timeout: 2 * time.Minute, MaxTimeout: maxTimeout, Retries: 0,
			Risk: RiskCritical, Idempotent: true, Reversible: true, Rollback: "apply_manifest",
		},
		did:    "serverside-applied",
		absent: true,
		check: func(p *manifestParameters) []string {
			_, problems := parseAndValidateManifest(p)
			return problems
		},
		target: func(p *manifestParameters) v1alpha1.Target {
			object, _ := parseAndValidateManifest(p)
			return targetOfObject(object)
		},
		values: liveManifestFields,
		draft:  draftManifestChange,
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *manifestParameters, r Run) Result {
			w := newAttempt(c, pl, r)
			w.sender.manager = p.FieldManager
			expected := expectation{values: func(live *unstructured.Unstructured) map[string]any { return liveManifestFields(p, live) }}
			if p.State == statePresent {
				w.sender.force = &p.Force
			}
			return w.buildResult(w.sendPlanSteps(ctx, expected, "serverside-applied"))
		},
	})
}

// parseAndValidateManifest parses the object and returns its problems.
func parseAndValidateManifest(p *manifestParameters) (object *unstructured.Unstructured, problems []string) {
	object = &unstructured.Unstructured{Object: map[string]any{}}
	if err := utiljson.Unmarshal(p.Manifest, &object.Object); err != nil || object.Object == nil {
		return &unstructured.Unstructured{Object: map[string]any{}}, []string{"manifest: must be an object"}
	}
	complain := func(format string, args ...any) {
		problems = append(problems, "manifest: "+fmt.Sprintf(format, args...))
	}
	if len(p.Manifest) > maxManifest {
		complain("must be at most %d bytes, is %d", maxManifest, len(p.Manifest))
	}
	switch k, ok := findKind(object.GetAPIVersion(), object.GetKind()); {
	case !ok || object.GetAPIVersion() == "":
		complain("unsupported kind %s of API version %q", describeKind(object.GetKind()), TruncateText(object.GetAPIVersion(), 64))
	case k.cluster:
		complain("kind %s is not namespaced", object.GetKind())
	case k.kind == "Secret":
		complain("Secrets are not allowed, because readers of the execution could read the values: use update_secret")
	}
	if len(validation.IsDNS1123Subdomain(object.GetName())) > 0 {
		complain("metadata.name must be a DNS name, such as web-1")
	}
	if len(validation.IsDNS1123Label(object.GetNamespace())) > 0 {
		complain("metadata.namespace must be a DNS label, such as shop")
	}
	for key := range object.Object {
		if key == "status" {
			complain("status must not be set")
		}
	}
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, key := range sortedKeys(metadata) {
		if !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, key) {
			complain("metadata.%s must not be set", TruncateText(key, 64))
		}
	}
	if _, marks := object.GetAnnotations()[v1alpha1.AnnotationLastExecution]; marks {
		complain("the annotation %s is reserved for executions", v1alpha1.AnnotationLastExecution)
	}
	return object, problems
}

func describeKind(kind string) string {
	if kind == "" {
		return "object without a kind"
	}
	return TruncateText(kind, 64)
}

// liveManifestFields returns the fields of the live object that the manifest sets. For a deletion it
// returns whether the object exists.
func liveManifestFields(p *manifestParameters, live *unstructured.Unstructured) map[string]any {
	if p.State == stateAbsent {
		return map[string]any{"exists": live != nil}
	}
	manifest, _ := parseAndValidateManifest(p)
	if live == nil {
		return map[string]any{}
	}
	return digestManifestFieldsIfOversized(selectFields(manifest.Object, live.Object))
}

// digestManifestFieldsIfOversized replaces values by digests if the fields are too long for a plan.
func digestManifestFieldsIfOversized(fields map[string]any) map[string]any {
	raw, err := json.Marshal(fields)
	if err != nil || len(raw) <= 2*maxManifest {
		return fields
	}
	texts := make(map[string]any, len(fields))
	for key, value := range fields {
		texts[key] = formatUnquotedValue(value)
	}
	return digestAllFieldsIfTooLarge(texts)
}

// selectFields returns the fields of object that also occur in fields. Lists are taken as a whole.
func selectFields(fields, object map[string]any) map[string]any {
	had := map[string]any{}
	for key, wanted := range fields {
		value, ok := object[key]
		if !ok {
			continue
		}
		inside, isMap := wanted.(map[string]any)
		within, hasMap := value.(map[string]any)
		if !isMap || !hasMap {
			had[key] = value
			continue
		}
		had[key] = selectFields(inside, within)
	}
	return had
}

func draftManifestChange(ctx context.Context, c Client, s Subject, p *manifestParameters, live *unstructured.Unstructured) (*draft, error) {
	manifest, _ := parseAndValidateManifest(p)
	name := formatTarget(targetOfObject(manifest))
	if p.State == stateAbsent {
		return draftManifestDeletion(p, name, live)
	}
	result, err := c.dryRunApply(ctx, p, manifest)
	if err != nil {
		return nil, err
	}
	d := &draft{before: liveManifestFields(p, live), after: liveManifestFields(p, result)}
	if live != nil && reflect.DeepEqual(d.before, d.after) {
		return d, nil
	}
	k, _ := findKind(manifest.GetAPIVersion(), manifest.GetKind())
	step := v1alpha1.PlanStep{
		Description: "create " + name, Verb: verbPatch, APIVersion: k.apiVersion(), Resource: k.Resource,
		Namespace: manifest.GetNamespace(), Name: manifest.GetName(), PatchType: string(types.ApplyPatchType),
	}
	if live != nil {
		step.Description, step.UID = "apply "+name, live.GetUID()
	}
	if step, err = withJSONBody(step, addMarker(manifest.DeepCopy().Object, s)); err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.diff = lineDiff(flattenValue(d.before), flattenValue(d.after))
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       step.Description,
		ReplicasChanged:   describeReplicaChange(live, result),
	}
	d.rollback, err = p.newManifestRollback(manifest, live)
	return d, err
}

// describeReplicaChange describes the change of the replicas of an object. It is empty if they stay the
// same or do not exist. A manifest can change them implicitly: omitting a value that an earlier
// manifest set resets it.
func describeReplicaChange(live, result *unstructured.Unstructured) string {
	if _, has, err := unstructured.NestedInt64(result.Object, "spec", "replicas"); err != nil || !has {
		return ""
	}
	was, is := any(int64(0)), replicasFieldOrDefault(result)["replicas"]
	if live != nil {
		was = replicasFieldOrDefault(live)["replicas"]
	}
	if was == is {
		return ""
	}
	return fmt.Sprintf("%d -> %d", was, is)
}

// dryRunApply returns the result of a dry-run apply. Only the API server knows the fields that it
// adds.
func (c Client) dryRunApply(
	ctx context.Context,
	p *manifestParameters,
	manifest *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	k, _ := findKind(manifest.GetAPIVersion(), manifest.GetKind())
	body, err := json.Marshal(manifest.Object)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: p.FieldManager, Force: &p.Force}
	result, err := c.resourceClient(k.GroupVersionResource, manifest.GetNamespace()).
		Patch(ctx, manifest.GetName(), types.ApplyPatchType, body, o)
	switch {
	case isDeniedByAdmission(err):
		return nil, newRefusal(v1alpha1.DetailAdmissionDenied, "apply %s: %s", formatTarget(targetOfObject(manifest)), err)
	case apierrors.IsConflict(err):
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "apply %s: %s", formatTarget(targetOfObject(manifest)), err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, &InvalidError{Action: "apply_manifest", Problems: []string{"manifest: " + err.Error()}}
	}
	return result, err
}

func draftManifestDeletion(p *manifestParameters, name string, live *unstructured.Unstructured) (*draft, error) {
	d := &draft{before: liveManifestFields(p, live), after: liveManifestFields(p, nil)}
	if live == nil {
		return d, nil
	}
	step, err := newDeleteStep(live, nil, "delete "+name)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: step.Description + ", and the objects that it owns"}
	d.rollback, err = p.newManifestRollback(&unstructured.Unstructured{Object: withoutServerFields(live)}, live)
	return d, err
}

// newManifestRollback returns the rollback, which restores the previous values of the fields in the
// manifest. It includes the fields that the manager set before, because applying the manifest
// removes those. For a new object the rollback is its deletion.
func (p *manifestParameters) newManifestRollback(manifest, live *unstructured.Unstructured) (*v1alpha1.RollbackInformation, error) {
	parameters := map[string]any{"fieldManager": p.FieldManager, "force": true}
	if live == nil {
		parameters["state"] = stateAbsent
		parameters["manifest"] = map[string]any{
			"apiVersion": manifest.GetAPIVersion(), "kind": manifest.GetKind(),
			"metadata": map[string]any{"name": manifest.GetName(), "namespace": manifest.GetNamespace()},
		}
		return newRollbackInfo("apply_manifest", parameters, "10s")
	}
	before := selectFields(unionFields(manifest.Object, fieldNamesAppliedBy(live, p.FieldManager)), withoutServerFields(live))
	raw, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxManifest {
		return noRollback("the previous fields are too large for a plan"), nil
	}
	parameters["manifest"] = before
	return newRollbackInfo("apply_manifest", parameters, "10s")
}
