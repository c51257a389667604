// Package podinput makes what a pod's containers are given: their environment,
// their command line, and the files of their volumes.
//
// It follows the kubelet: references to ConfigMaps, Secrets, fields and
// resources are resolved, $(NAME) is expanded, projected files change at once
// and as a whole, service account tokens are bound to the pod and renewed
// before they end. A reference to what does not exist is an error that may pass;
// what Check refuses never will.
package podinput

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// A Source knows where the values come from.
type Source struct {
	Client kubernetes.Interface

	// Host and Port are the API server's, as a pod reaches it.
	Host, Port string

	// CA is the API server's certificate authority. It stands in where a
	// namespace has no ConfigMap kube-root-ca.crt, which a controller makes.
	CA []byte

	// Allocatable stands in for limits that a container does not have.
	Allocatable corev1.ResourceList

	// Env is given to every container, under what its pod says.
	Env []string
}

// rootCAConfigMap is in every namespace where the controller that puts it there runs.
const rootCAConfigMap = "kube-root-ca.crt"

// Check reports what a pod asks for that is not given to it here.
func Check(pod *corev1.Pod) error {
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
