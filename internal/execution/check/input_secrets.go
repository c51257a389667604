package check

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A SecretRef is a Secret that an object references.
type SecretRef struct {
	Name  string
	Pulls bool // used to pull images
}

// RequiredSecretRefs returns the Secrets that the Pods of an object require for images, variables and
// volumes, sorted by name. It omits optional ones. ok is false if the object neither has Pods nor is one.
func RequiredSecretRefs(live *unstructured.Unstructured) (refs []SecretRef, ok bool) {
	spec, ok := decodePodSpec(live)
	if !ok {
		return nil, false
	}
	named := secretNames{}
	for _, s := range spec.ImagePullSecrets {
		if s.Name != "" {
			named[s.Name] = true
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		named.addRequiredEnvSecretNames(&c)
	}
	for i := range spec.Volumes {
		named.addRequiredVolumeSecretNames(&spec.Volumes[i])
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		refs = append(refs, SecretRef{Name: name, Pulls: named[name]})
	}
	return refs, true
}

// secretNames maps names of Secrets to whether they are used to pull images.
type secretNames map[string]bool

// addRequiredName adds a Secret unless it is optional.
func (n secretNames) addRequiredName(name string, optional *bool) {
	if name != "" && !n[name] && (optional == nil || !*optional) {
		n[name] = false
	}
}

func (n secretNames) addRequiredEnvSecretNames(c *corev1.Container) {
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			n.addRequiredName(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Optional)
		}
	}
	for _, e := range c.EnvFrom {
		if e.SecretRef != nil {
			n.addRequiredName(e.SecretRef.Name, e.SecretRef.Optional)
		}
	}
}

func (n secretNames) addRequiredVolumeSecretNames(v *corev1.Volume) {
	if v.Secret != nil {
		n.addRequiredName(v.Secret.SecretName, v.Secret.Optional)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		n.addRequiredName(v.CSI.NodePublishSecretRef.Name, nil)
	}
	if v.Projected == nil {
		return
	}
	for _, s := range v.Projected.Sources {
		if s.Secret != nil {
			n.addRequiredName(s.Secret.Name, s.Secret.Optional)
		}
	}
}

// decodePodSpec returns the Pod template of an object, or the spec of a Pod.
func decodePodSpec(live *unstructured.Unstructured) (podSpec *corev1.PodSpec, hasPodSpec bool) {
	if w, ok := decodeWorkload(live); ok {
		return &w.Spec.Template.Spec, true
	}
	if live == nil || live.GetKind() != "Pod" {
		return nil, false
	}
	text, err := json.Marshal(live.Object["spec"])
	if err != nil {
		return nil, false
	}
	spec := new(corev1.PodSpec)
	if err := json.Unmarshal(text, spec); err != nil {
		return nil, false
	}
	return spec, true
}
