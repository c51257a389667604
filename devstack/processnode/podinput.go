package processnode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// An InputSource has the sources of the values.
type InputSource struct {
	Client kubernetes.Interface

	// Host and Port are those of the API server, as seen from a pod.
	Host, Port string

	// CA is the API server's certificate authority. It is used where a namespace has no
	// ConfigMap kube-root-ca.crt, which a controller creates.
	CA []byte

	// Allocatable is used for limits that a container does not have.
	Allocatable corev1.ResourceList

	// Env is the environment of every container, which the pod can override.
	Env []string
}

// rootCAConfigMap is the ConfigMap that a controller, if it runs, creates in every
// namespace.
const rootCAConfigMap = "kube-root-ca.crt"

// CheckVolumes returns an error if a volume has an unsupported type or source.
func CheckVolumes(pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil && v.Projected == nil && v.HostPath == nil {
			return fmt.Errorf("volume %q has an unsupported type: use emptyDir, configMap, secret, downwardAPI, projected or hostPath", v.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil {
				return fmt.Errorf("volume %q has an unsupported source: use configMap, secret, downwardAPI or serviceAccountToken", v.Name)
			}
		}
	}
	return nil
}
