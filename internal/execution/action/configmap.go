package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// maxConfigData limits the ConfigMap data in a plan: the new values, and the previous ones for the
// rollback.
const maxConfigData = 4 << 10

type configMapParameters struct {
	ConfigMap string             `json:"configmap" doc:"Name of the ConfigMap." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string             `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Data      map[string]*string `json:"data" doc:"Keys to set, each with its new value; null removes the key. Other keys do not change. At most 4096 bytes." required:"true" keys:"config-key"`
}

func newPatchConfigMapAction() *Action {
	return newAction(entry[configMapParameters]{
		Action: Action{
			Name:    "patch_configmap",
			Summary: "Set or remove keys of a ConfigMap.",
			Kubectl: `kubectl patch configmap settings -n shop --type merge -p '{"data":{"level":"debug"}}'`,
			Aliases: []string{"update_configmap"},
			Kinds:   []string{"ConfigMap"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "configmaps", Verbs: []string{"get", "patch"}, Why: "read and change the keys"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "patch_configmap",
		},
		did: "patched",
		check: func(p *configMapParameters) []string {
			size := 0
			for _, v := range p.Data {
				if v != nil {
					size += len(*v)
				}
			}
			switch {
			case len(p.Data) == 0:
				return []string{"data: must have at least one key"}
			case size > maxConfigData:
				return []string{fmt.Sprintf("data: must be at most %d bytes, is %d", maxConfigData, size)}
			}
			return nil
		},
		values: func(p *configMapParameters, live *unstructured.Unstructured) map[string]any {
			return digestAllFieldsIfTooLarge(currentDataFields(p, live))
		},
		draft: draftConfigMapPatch,
	})
}

// currentDataFields returns the given keys of a ConfigMap; nil marks a missing key. Each key is a separate
// field, so that a diff shows one line per line of text.
func currentDataFields(p *configMapParameters, live *unstructured.Unstructured) map[string]any {
	data := make(map[string]any, len(p.Data))
	for key := range p.Data {
		data["data."+key] = nil
		if v, ok, err := unstructured.NestedString(live.Object, "data", key); ok && err == nil {
			data["data."+key] = v
		}
	}
	return data
}

// digestAllFieldsIfTooLarge replaces all texts by digests if they are together too long for a plan.
func digestAllFieldsIfTooLarge(fields map[string]any) map[string]any {
	if countTopLevelStringBytes(fields) <= maxConfigData {
		return fields
	}
	short := make(map[string]any, len(fields))
	for name, value := range fields {
		short[name] = value
		if text, ok := value.(string); ok {
			sum := sha256.Sum256([]byte(text))
			short[name] = fmt.Sprintf("sha256:%s (%d bytes)", hex.EncodeToString(sum[:]), len(text))
		}
	}
	return short
}

func countTopLevelStringBytes(fields map[string]any) int {
	size := 0
	for _, value := range fields {
		if text, ok := value.(string); ok {
			size += len(text)
		}
	}
	return size
}

func draftConfigMapPatch(_ context.Context, _ Client, s Subject, p *configMapParameters, live *unstructured.Unstructured) (*draft, error) {
	if err := refuseImmutable(live); err != nil {
		return nil, err
	}
	before, after, data, previous := currentDataFields(p, live), map[string]any{}, map[string]any{}, map[string]any{}
	for key, v := range p.Data {
		previous[key] = before["data."+key]
		after["data."+key], data[key] = nil, nil
		if v != nil {
			after["data."+key], data[key] = *v, *v
		}
	}
	d := &draft{before: digestAllFieldsIfTooLarge(before), after: digestAllFieldsIfTooLarge(after)}
	if reflect.DeepEqual(before, after) {
		return d, nil
	}
	keys := joinFirstNames(slices.Sorted(maps.Keys(data)))
	step, err := newPatchStep(live, types.MergePatchType, addMarker(map[string]any{"data": data}, s),
		fmt.Sprintf("set %s of ConfigMap %s/%s", keys, p.Namespace, p.ConfigMap))
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       "keys " + keys + "; Pods that read them at start keep the old values until they restart",
	}
	if size := countTopLevelStringBytes(before); size > maxConfigData {
		d.rollback = noRollback(fmt.Sprintf("the previous values have %d bytes, and a plan can store at most %d", size, maxConfigData))
		return d, nil
	}
	d.rollback, err = newRollbackInfo(
		"patch_configmap",
		map[string]any{"configmap": p.ConfigMap, "namespace": p.Namespace, "data": previous},
		"10s",
	)
	return d, err
}

// refuseImmutable refuses immutable ConfigMaps and Secrets.
func refuseImmutable(live *unstructured.Unstructured) error {
	if immutable, _, err := unstructured.NestedBool(live.Object, "immutable"); err == nil && immutable {
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"%s %s/%s is immutable: create a new one and reference it instead",
			live.GetKind(),
			live.GetNamespace(),
			live.GetName(),
		)
	}
	return nil
}

// noRollback returns an unavailable rollback with a reason.
func noRollback(why string) *v1alpha1.RollbackInformation {
	return &v1alpha1.RollbackInformation{Reason: why}
}
