package processnode

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resolvePodField returns the value of a field of the pod, as in the downward API.
func resolvePodField(pod *corev1.Pod, path string) (string, error) {
	if key, ok := parseSubscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := parseSubscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatPairs(pod.Labels), nil
	case "metadata.annotations":
		return formatPairs(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	}
	return "", fmt.Errorf("pod field %q is not available to containers", path)
}

func parseSubscript(path, name string) (string, bool) {
	rest, ok := strings.CutPrefix(path, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

func formatPairs(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", k, m[k])
	}
	return b.String()
}

// resolveResourceField returns a container's request or limit in units of the divisor, rounded
// up.
func (s *InputSource) resolveResourceField(pod *corev1.Pod, container string, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	c, err := findContainer(pod, container)
	if err != nil {
		return "", err
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("resource %q of container %q is not a limit or request", ref.Resource, container)
	}
	list := c.Resources.Requests
	if kind == "limits" {
		list = c.Resources.Limits
	}
	value, ok := list[corev1.ResourceName(name)]
	if !ok && kind == "limits" {
		value = s.Allocatable[corev1.ResourceName(name)]
	}
	return formatQuotientRoundedUp(value, ref.Divisor, name == string(corev1.ResourceCPU)), nil
}

func formatQuotientRoundedUp(value, divisor resource.Quantity, milliPrecision bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	v, d := value.Value(), divisor.Value()
	if milliPrecision {
		v, d = value.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt((v+d-1)/d, 10)
}

func findContainer(pod *corev1.Pod, name string) (*corev1.Container, error) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, fmt.Errorf("container %q not found in the pod", name)
}
