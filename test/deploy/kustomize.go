package deploy

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Kustomize builds the kustomization in a folder, as "kubectl kustomize" does.
func Kustomize(folder string) ([]*unstructured.Unstructured, error) {
	answer, err := sendToRenderer(Request{Kustomization: folder})
	return answer.unstructuredObjects(), err
}
