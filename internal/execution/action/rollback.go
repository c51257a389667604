package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	templateHashLabel  = "pod-template-hash"
)

type rollbackDeploymentParameters struct {
	Deployment string `json:"deployment" doc:"Name of the Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace  string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Revision   *int64 `json:"revision" doc:"Revision to roll back to. Defaults to the previous one." min:"1"`
}

func newRollbackDeploymentAction() *Action {
	return newAction(entry[rollbackDeploymentParameters]{
		Action: Action{
			Name:    "rollback_deployment",
			Summary: "Roll a Deployment back to an earlier revision.",
			Kubectl: "kubectl rollout undo deployment/NAME --to-revision=N",
			Kinds:   []string{kindDeployment},
			Scope:   Namespaced,
			Permissions: append(deploymentRights("set the Pod template"),
				Permission{Group: groupApps, Resource: "replicasets", Verbs: []string{"list"}, Why: "read the Pod template of the revision"}),
			Timeout: 2 * time.Minute, MaxTimeout: maxTimeout,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "rollback_deployment",
		},
		draft: draftRollback,
		values: func(_ *rollbackDeploymentParameters, live *unstructured.Unstructured) map[string]any {
			template, _, _ := unstructured.NestedMap(live.Object, "spec", "template") // an object without a template has no values
			return templateImagesAndDigest(template)
		},
		did: "rolled back",
	})
}

// templateImagesAndDigest returns the images and a digest of a template, which identify it for people and in
// comparisons.
func templateImagesAndDigest(template map[string]any) map[string]any {
	images := []any{}
	for _, c := range containersOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}}) {
		images = append(images, c.spec["image"])
	}
	sum := sha256.Sum256([]byte(canonicalValue(template)))
	return map[string]any{"images": images, "template": hex.EncodeToString(sum[:8])}
}

// A revision is an earlier template of a Deployment.
type revision struct {
	number   int64
	template map[string]any
}

func draftRollback(
	ctx context.Context,
	c Client,
	s Subject,
	p *rollbackDeploymentParameters,
	live *unstructured.Unstructured,
) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	if isPaused(live) {
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "%s is paused: resume its rollout first", name)
	}
	revisions, err := listRevisionsNewestFirst(ctx, c, live)
	if err != nil {
		return nil, err
	}
	current, _ := strconv.ParseInt(live.GetAnnotations()[revisionAnnotation], 10, 64) // 0 means unknown
	to, err := chooseRevision(name, revisions, current, p.Revision)
	if err != nil {
		return nil, err
	}
	template, _, err := unstructured.NestedMap(live.Object, "spec", "template")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &draft{before: templateImagesAndDigest(template), after: templateImagesAndDigest(to.template)}
	if len(describeDifferences(d.before, d.after)) == 0 {
		d.impact.Description = fmt.Sprintf("%s already has the template of revision %d", name, to.number)
		return d, nil
	}
	d.diff = lineDiff(flattenValue(template), flattenValue(to.template))
	replace := []any{map[string]any{"op": "replace", "path": "/spec/template", "value": to.template}}
	what := fmt.Sprintf("roll %s back to revision %d", name, to.number)
	step, err := newPatchStep(live, types.JSONPatchType, appendMarkerOperation(replace, live, s), what)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       fmt.Sprintf("%s replaces its Pods with Pods of revision %d", name, to.number),
	}
	d.rollback, err = newRollbackToRevision(p, revisions, current)
	return d, err
}

// newRollbackToRevision returns the rollback to the present revision.
func newRollbackToRevision(p *rollbackDeploymentParameters, revisions []revision, current int64) (*v1alpha1.RollbackInformation, error) {
	if !slices.ContainsFunc(revisions, func(r revision) bool { return r.number == current }) {
		return &v1alpha1.RollbackInformation{Reason: "the ReplicaSet of the current revision does not exist"}, nil
	}
	return newRollbackInfo(
		"rollback_deployment",
		map[string]any{"deployment": p.Deployment, "namespace": p.Namespace, "revision": current},
		"30s",
	)
}

// listRevisionsNewestFirst returns the revisions whose ReplicaSet still exists, latest first.
func listRevisionsNewestFirst(ctx context.Context, c Client, live *unstructured.Unstructured) ([]revision, error) {
	sets, err := listControlledReplicaSets(ctx, c, live)
	if err != nil {
		return nil, err
	}
	var all []revision
	for _, set := range sets {
		number, err := strconv.ParseInt(set.GetAnnotations()[revisionAnnotation], 10, 64)
		if err != nil {
			continue
		}
		template, found, err := unstructured.NestedMap(set.Object, "spec", "template")
		if err != nil || !found {
			continue
		}
		unstructured.RemoveNestedField(template, "metadata", "labels", templateHashLabel)
		all = append(all, revision{number: number, template: template})
	}
	slices.SortFunc(all, func(a, b revision) int { return int(b.number - a.number) })
	return all, nil
}

// listControlledReplicaSets returns the ReplicaSets controlled by a Deployment.
func listControlledReplicaSets(ctx context.Context, c Client, live *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	k, _ := findKind("", "ReplicaSet")
	matching, _, err := unstructured.NestedStringMap(live.Object, "spec", "selector", "matchLabels")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", formatTarget(targetOfObject(live)), err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// The labels narrow the list; the owner reference decides.
	o := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: matching})}
	list, err := c.resourceClient(k.GroupVersionResource, live.GetNamespace()).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("list the ReplicaSets of %s: %w", formatTarget(targetOfObject(live)), err)
	}
	return slices.DeleteFunc(list.Items, func(set unstructured.Unstructured) bool {
		owner := metav1.GetControllerOf(&set)
		return owner == nil || owner.UID != live.GetUID()
	}), nil
}

// chooseRevision returns the requested revision, or the previous one.
func chooseRevision(name string, revisions []revision, current int64, requested *int64) (revision, error) {
	var available []string
	for _, r := range revisions {
		chosen := r.number < current
		if requested != nil {
			chosen = r.number == *requested
		}
		if chosen {
			return r, nil
		}
		available = append(available, strconv.FormatInt(r.number, 10))
	}
	if requested == nil {
		return revision{}, newRefusal(v1alpha1.DetailInvalidTargetState, "%s has no revision before %d", name, current)
	}
	return revision{}, newRefusal(v1alpha1.DetailInvalidTargetState, "%s no longer has revision %d: available revisions are %s",
		name, *requested, strings.Join(available, ", "))
}

// flattenValue returns the leaves of a value by path. List members with a name use it as their path
// element.
func flattenValue(value any) map[string]any {
	leaves := map[string]any{}
	addLeaves(leaves, "", value)
	return leaves
}

func addLeaves(leaves map[string]any, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			addLeaves(leaves, strings.TrimPrefix(path+"."+key, "."), member)
		}
	case []any:
		for i, member := range v {
			at := strconv.Itoa(i)
			fields, _ := member.(map[string]any)
			if name, ok := fields["name"].(string); ok {
				at = name
			}
			addLeaves(leaves, path+"["+at+"]", member)
		}
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return
		}
		leaves[path] = json.RawMessage(text)
	}
}
