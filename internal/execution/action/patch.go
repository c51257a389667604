package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// The patch types of parameters.
const (
	patchStrategic = "strategic"
	patchMerge     = "merge"
	patchJSON      = "json"
)

type patchDeploymentParameters struct {
	Deployment string          `json:"deployment" doc:"Name of the Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace  string          `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	PatchType  string          `json:"patchType" doc:"Type of the patch." enum:"strategic,merge,json" default:"strategic"`
	Patch      json.RawMessage `json:"patch" doc:"Patch of spec, labels and annotations; for patchType json a list of operations. Can be a string." required:"true" type:"either"`
}

func newPatchDeploymentAction() *Action {
	return newAction(entry[patchDeploymentParameters]{
		Action: Action{
			Name:        "patch_deployment",
			Summary:     "Patch a Deployment.",
			Kubectl:     "kubectl patch deployment/NAME --type=TYPE -p PATCH",
			Kinds:       []string{kindDeployment},
			Scope:       Namespaced,
			Permissions: deploymentRights("patch the Deployment"),
			Timeout:     2 * time.Minute, MaxTimeout: maxTimeout,
			Risk: RiskHigh, Idempotent: true, Reversible: true, Rollback: "patch_deployment",
		},
		spell: decodePatchGivenAsString,
		check: validatePatch,
		draft: draftDeploymentPatch,
		values: func(p *patchDeploymentParameters, live *unstructured.Unstructured) map[string]any {
			paths, _ := patchedPaths(p.PatchType, p.Patch) // checked when it was read
			return valuesAtPointers(live.Object, paths)
		},
		did: "patched",
	})
}

// decodePatchGivenAsString decodes a patch that is given as a string.
func decodePatchGivenAsString(_ string, raw map[string]json.RawMessage) (problems []string) {
	var text string
	if patch := raw["patch"]; len(patch) == 0 || patch[0] != '"' || json.Unmarshal(patch, &text) != nil {
		return nil
	}
	text = strings.TrimSpace(text)
	if !json.Valid([]byte(text)) {
		return []string{"patch: must be JSON, got the string " + TruncateText(string(raw["patch"]), 64)}
	}
	raw["patch"] = json.RawMessage(text)
	return nil
}

func validatePatch(p *patchDeploymentParameters) (problems []string) {
	if want := byte('{'); p.PatchType == patchJSON && p.Patch[0] == want || p.PatchType != patchJSON && p.Patch[0] != want {
		return []string{fmt.Sprintf("patch: invalid for patchType %s", p.PatchType)}
	}
	paths, problems := patchedPaths(p.PatchType, p.Patch)
	if len(problems) == 0 && len(paths) == 0 {
		problems = []string{"patch: changes nothing"}
	}
	return problems
}

// draftDeploymentPatch asks the API server for the result of the patch. Only the API server can fill in
// defaults and knows the merge keys of lists.
func draftDeploymentPatch(
	ctx context.Context,
	c Client,
	s Subject,
	p *patchDeploymentParameters,
	live *unstructured.Unstructured,
) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	step, err := newDeploymentPatchStep(p, live, s)
	if err != nil {
		return nil, err
	}
	changed, err := dryRunPatch(ctx, c, step, live.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	if !keepsIdentityOwnersAndStatus(live, changed) {
		return nil, &InvalidError{Action: "patch_deployment", Problems: []string{"patch: must not change owner references or finalizers"}}
	}
	paths, _ := patchedPaths(p.PatchType, p.Patch) // checked when it was read
	d := &draft{before: valuesAtPointers(live.Object, paths), after: valuesAtPointers(changed.Object, paths)}
	if len(describeDifferences(d.before, d.after)) == 0 {
		d.impact.Description = name + " already matches the patch"
		return d, nil
	}
	d.diff = lineDiff(flattenValue(d.before), flattenValue(d.after))
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: fmt.Sprintf("%s is patched at %s", name, strings.Join(paths, ", "))}
	was, is := replicasFieldOrDefault(live)["replicas"], replicasFieldOrDefault(changed)["replicas"]
	if was != is {
		d.impact.ReplicasChanged = fmt.Sprintf("%d -> %d", was, is)
	}
	d.rollback, err = newRollbackInfo("patch_deployment", map[string]any{
		"deployment": p.Deployment, "namespace": p.Namespace, "patchType": patchMerge, "patch": reversePatch(paths, d.before, d.after),
	}, "30s")
	return d, err
}

// newDeploymentPatchStep returns the request with the marker.
func newDeploymentPatchStep(p *patchDeploymentParameters, live *unstructured.Unstructured, s Subject) (v1alpha1.PlanStep, error) {
	what := "patch " + formatTarget(targetOfObject(live))
	if p.PatchType == patchJSON {
		var operations []any
		if err := utiljson.Unmarshal(p.Patch, &operations); err != nil {
			return v1alpha1.PlanStep{}, err
		}
		return newPatchStep(live, types.JSONPatchType, appendMarkerOperation(operations, live, s), what)
	}
	var body map[string]any
	if err := utiljson.Unmarshal(p.Patch, &body); err != nil {
		return v1alpha1.PlanStep{}, err
	}
	kind := types.StrategicMergePatchType
	if p.PatchType == patchMerge {
		kind = types.MergePatchType
	}
	return newPatchStep(live, kind, addMarker(body, s), what)
}

// dryRunPatch sends a patch as a dry run.
func dryRunPatch(ctx context.Context, c Client, step v1alpha1.PlanStep, resourceVersion string) (*unstructured.Unstructured, error) {
	resource, err := resourceOfStep(step)
	if err != nil {
		return nil, err
	}
	body, err := patchBodyWithPreconditions(step, resourceVersion)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	changed, err := c.resourceClient(resource, step.Namespace).Patch(ctx, step.Name, types.PatchType(step.PatchType), body,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
	if isDeniedByAdmission(err) {
		return nil, newRefusal(v1alpha1.DetailAdmissionDenied, "%s: %s", step.Description, err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusBadRequest, http.StatusUnprocessableEntity:
			problem := "patch: rejected by the API server: " + TruncateText(err.Error(), maxMessage)
			if types.PatchType(step.PatchType) == types.JSONPatchType && !hasCause(status.Status()) { // the server does not name the operation
				problem += " (an operation, such as test, does not match the current object)"
			}
			return nil, &InvalidError{Action: "patch_deployment", Problems: []string{problem}}
		case http.StatusForbidden:
			return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "%s: rejected by the API server: %s", step.Description, err)
		}
	}
	return changed, err
}

// hasCause reports whether a refusal states a cause.
func hasCause(s metav1.Status) bool { return s.Details != nil && len(s.Details.Causes) > 0 }

// keepsIdentityOwnersAndStatus reports whether a patch leaves these fields and the finalizers.
func keepsIdentityOwnersAndStatus(was, is *unstructured.Unstructured) bool {
	return was.GetName() == is.GetName() && was.GetNamespace() == is.GetNamespace() && was.GetUID() == is.GetUID() &&
		was.GetAPIVersion() == is.GetAPIVersion() && was.GetKind() == is.GetKind() &&
		slices.Equal(was.GetFinalizers(), is.GetFinalizers()) &&
		canonicalValue(was.Object["status"]) == canonicalValue(is.Object["status"]) &&
		canonicalValue(was.GetOwnerReferences()) == canonicalValue(is.GetOwnerReferences())
}
