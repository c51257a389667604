package deploy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Kustomize builds the kustomization in a folder, as "kubectl kustomize" does.
func Kustomize(folder string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("build kustomization %q: %w", folder, err)
	}
	raw, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write kustomization %q: %w", folder, err)
	}
	return ParseObjects(raw)
}
