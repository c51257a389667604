package kubebed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const crdKind = "CustomResourceDefinition"

// InstallCRDs installs or updates the CustomResourceDefinitions of files, or of folders
// with such files, and waits until they are served.
func (b *Bed) InstallCRDs(ctx context.Context, paths ...string) error {
	if len(paths) == 0 {
		return nil
	}
	crds, err := readCRDs(paths)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	return b.applyCRDsAndWait(ctx, crds)
}

// InstallCRDText is like InstallCRDs for the text of a YAML file.
func (b *Bed) InstallCRDText(ctx context.Context, text []byte) error {
	crds, err := extractCRDs(text)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	return b.applyCRDsAndWait(ctx, crds)
}

func (b *Bed) applyCRDsAndWait(ctx context.Context, crds []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(b.admin)
	if err != nil {
		return err
	}
	resource := client.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	)
	for _, crd := range crds {
		_, err := resource.Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "kubebed", Force: true})
		if err != nil {
			return fmt.Errorf("install CRD %q: %w", crd.GetName(), err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errCRDBound)
	defer cancel()
	for _, crd := range crds {
		err := pollUntilOK(ctx, func(ctx context.Context) error {
			now, err := resource.Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return checkServed(ctx, b.admin, now)
		})
		if err != nil {
			return fmt.Errorf("wait for CRD %q: %w", crd.GetName(), err)
		}
	}
	return nil
}

var errCRDBound = fmt.Errorf("not served within %s", startBound)

// checkServed returns why a CRD's versions are not served yet.
func checkServed(ctx context.Context, cfg *rest.Config, crd *unstructured.Unstructured) error {
	if err := checkEstablished(crd); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group") // the server has validated its schema
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		of := fmt.Sprintf("%s/%v", group, version["name"])
		list, err := client.ServerResourcesForGroupVersionWithContext(ctx, of)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
			return fmt.Errorf("%s of %s is not served yet", plural, of)
		}
	}
	return nil
}

// checkEstablished returns why a CRD is not established.
func checkEstablished(crd *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		switch {
		case !ok:
		case condition["type"] == "NamesAccepted" && condition["status"] == "False":
			return fmt.Errorf("names not accepted: %v", condition["message"])
		case condition["type"] == "Established" && condition["status"] == "True":
			return nil
		}
	}
	return errors.New("not established yet")
}

// readCRDs reads the CRDs of files and folders. It ignores other objects in the files;
// a path without any CRD is an error.
func readCRDs(paths []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // the caller names it
			if err != nil {
				return nil, err
			}
			crds, err := extractCRDs(text)
			if err != nil {
				return nil, fmt.Errorf("read %q: %w", file, err)
			}
			all = append(all, crds...)
		}
		if len(all) == before {
			return nil, fmt.Errorf("no %s in %q", crdKind, path)
		}
	}
	return all, nil
}

// manifestFiles returns the files at a path: the path itself, or the files of the folder.
func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return files, nil
}

// extractCRDs returns the CRDs in a YAML text.
func extractCRDs(text []byte) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, err
		}
		if u.GetKind() == crdKind {
			crds = append(crds, u)
		}
	}
}
