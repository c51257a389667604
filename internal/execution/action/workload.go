package action

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// maxTimeout is the maximum timeout of most actions.
const maxTimeout = 15 * time.Minute

// The kinds of workloads.
const (
	groupApps       = "apps"
	kindDeployment  = "Deployment"
	kindStatefulSet = "StatefulSet"
	kindDaemonSet   = "DaemonSet"
	kindPod         = "Pod"
)

// deploymentRights returns the rights to read and patch a Deployment.
func deploymentRights(why string) []Permission {
	return []Permission{{Group: groupApps, Resource: "deployments", Verbs: []string{"get", "patch"}, Why: why}}
}

// targetOfObject returns the target that names a live object.
func targetOfObject(live *unstructured.Unstructured) v1alpha1.Target {
	return v1alpha1.Target{APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName()}
}

// newRollbackInfo returns a rollback by an action.
func newRollbackInfo(action string, parameters map[string]any, estimatedDuration string) (*v1alpha1.RollbackInformation, error) {
	raw, err := encodeValues(parameters)
	if err != nil {
		return nil, err
	}
	if len(raw.Raw) > maxParameters {
		return &v1alpha1.RollbackInformation{
			Reason: fmt.Sprintf("the rollback needs %d bytes of parameters, at most %d are allowed", len(raw.Raw), maxParameters),
		}, nil
	}
	return &v1alpha1.RollbackInformation{
		Available: true, RollbackAction: action, RollbackParameters: raw, EstimatedRollbackDuration: estimatedDuration,
	}, nil
}

// isPaused reports whether the rollout of a Deployment is paused.
func isPaused(live *unstructured.Unstructured) bool {
	is, _, err := unstructured.NestedBool(live.Object, "spec", "paused")
	return err == nil && is
}

// A container is a container of a Pod template.
type container struct {
	list string // the field: containers or initContainers
	spec map[string]any
}

// containersOf returns the containers of the template of a workload.
func containersOf(live *unstructured.Unstructured) []container {
	var all []container
	for _, list := range []string{"containers", "initContainers"} {
		found, _, err := unstructured.NestedSlice(live.Object, "spec", "template", "spec", list)
		if err != nil {
			continue
		}
		for _, f := range found {
			if spec, ok := f.(map[string]any); ok {
				all = append(all, container{list: list, spec: spec})
			}
		}
	}
	return all
}

// findContainer returns a container by name.
func findContainer(live *unstructured.Unstructured, name string) (c container, found bool) {
	for _, c := range containersOf(live) {
		if c.spec["name"] == name {
			return c, true
		}
	}
	return container{}, false
}

// noContainerError refuses a workload without a container of the name, and lists its containers.
func noContainerError(live *unstructured.Unstructured, name string) error {
	var has []any
	for _, c := range containersOf(live) {
		has = append(has, c.spec["name"])
	}
	return newRefusal(v1alpha1.DetailInvalidTargetState, "%s has no container %q: it has %v", formatTarget(targetOfObject(live)), name, has)
}

// newContainerPatchStep returns a step that changes one container of a template and leaves the others to
// their managers.
func newContainerPatchStep(
	live *unstructured.Unstructured,
	c container,
	change map[string]any,
	s Subject,
	description string,
) (v1alpha1.PlanStep, error) {
	change["name"] = c.spec["name"]
	body := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{c.list: []any{change}}}}}
	return newPatchStep(live, types.StrategicMergePatchType, addMarker(body, s), description)
}
