package action

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type pvcParameters struct {
	PVC       string `json:"pvc" doc:"Name of the PersistentVolumeClaim." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Size      string `json:"size" doc:"New storage request; must be larger than the current one." required:"true" format:"quantity"`
}

func newExpandPVCAction() *Action {
	return newAction(entry[pvcParameters]{
		Action: Action{
			Name:    "expand_pvc",
			Summary: "Increase the storage request of a PersistentVolumeClaim.",
			Kubectl: `kubectl patch pvc data -n shop --type merge -p '{"spec":{"resources":{"requests":{"storage":"20Gi"}}}}'`,
			Kinds:   []string{"PersistentVolumeClaim"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "persistentvolumeclaims", Verbs: []string{"get", "patch"}, Why: "read and change the storage request"},
				{
					Group:         "storage.k8s.io",
					Resource:      "storageclasses",
					Verbs:         []string{"get"},
					ClusterScoped: true,
					Why:           "check whether its volumes can be expanded",
				},
			},
			Timeout: 5 * time.Minute, MaxTimeout: maxTimeout, Retries: 1,
			Risk: RiskHigh, Idempotent: true,
		},
		did: "expanded",
		values: func(_ *pvcParameters, live *unstructured.Unstructured) map[string]any {
			return requestedStorageField(live)
		},
		draft: draftPVCExpansion,
	})
}

// requestedStorageField returns the storage request of a claim.
func requestedStorageField(live *unstructured.Unstructured) map[string]any {
	text, _, err := unstructured.NestedString(live.Object, "spec", "resources", "requests", "storage")
	if err != nil {
		text = ""
	}
	return map[string]any{"storage": text}
}

func draftPVCExpansion(ctx context.Context, c Client, s Subject, p *pvcParameters, live *unstructured.Unstructured) (*draft, error) {
	d := &draft{before: requestedStorageField(live), after: map[string]any{"storage": p.Size}}
	size, err := resource.ParseQuantity(p.Size)
	if err != nil {
		return nil, &InvalidError{Action: "expand_pvc", Problems: []string{"size: " + err.Error()}}
	}
	text, _ := d.before["storage"].(string)
	was, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"PersistentVolumeClaim %s/%s has an invalid storage request: %q",
			p.Namespace,
			p.PVC,
			text,
		)
	}
	switch size.Cmp(was) {
	case 0:
		return d, nil
	case -1:
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "PersistentVolumeClaim %s/%s already requests %s, and volumes cannot shrink to %s", p.Namespace, p.PVC, text, p.Size)
	}
	if err = c.refuseUnexpandableClaim(ctx, live); err != nil {
		return nil, err
	}
	body := map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": p.Size}}}}
	step, err := newPatchStep(
		live,
		types.MergePatchType,
		addMarker(body, s),
		"increase the storage request of PersistentVolumeClaim "+p.Namespace+"/"+p.PVC+" from "+text+" to "+p.Size,
	)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       "storage " + text + " -> " + p.Size + "; the CSI driver expands the volume, in some cases only after a restart of the Pod",
	}
	d.rollback = noRollback("volumes cannot shrink")
	return d, nil
}

// refuseUnexpandableClaim refuses a claim whose volume cannot be expanded.
func (c Client) refuseUnexpandableClaim(ctx context.Context, live *unstructured.Unstructured) error {
	phase, _, _ := unstructured.NestedString(live.Object, "status", "phase")
	if phase != "Bound" {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"PersistentVolumeClaim %s/%s is %s, only Bound claims can be expanded",
			live.GetNamespace(),
			live.GetName(),
			phase,
		)
	}
	name, _, _ := unstructured.NestedString(live.Object, "spec", "storageClassName")
	if name == "" {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"PersistentVolumeClaim %s/%s has no storage class, so its volume cannot be expanded",
			live.GetNamespace(),
			live.GetName(),
		)
	}
	class, err := c.getObjectOnce(ctx, v1alpha1.Target{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass", Name: name})
	if apierrors.IsNotFound(err) {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"StorageClass %s of PersistentVolumeClaim %s/%s does not exist, so its volume cannot be expanded",
			name,
			live.GetNamespace(),
			live.GetName(),
		)
	}
	if err != nil {
		return err
	}
	if grows, _, _ := unstructured.NestedBool(class.Object, "allowVolumeExpansion"); !grows {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"StorageClass %s of PersistentVolumeClaim %s/%s does not allow expansion (allowVolumeExpansion)",
			name,
			live.GetNamespace(),
			live.GetName(),
		)
	}
	return nil
}
