package gardenbed

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"text/template"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// objects are what a garden has in it, as templates.
//
//go:embed objects
var objects embed.FS

// ApplyProjectAndWait creates or updates a project with everything that Shoots of every provider
// require, and returns when Shoots are accepted there. The name has at most ten
// characters. A project stays as long as the garden's state.
func (b *Bed) ApplyProjectAndWait(ctx context.Context, name string) (namespace string, err error) {
	namespace = NamespaceOf(name)
	values := map[string]any{"Project": name, "Namespace": namespace}
	if err := b.applyTemplate(ctx, "project", values); err != nil {
		return "", err
	}
	probes, err := renderTemplate("probe", values)
	if err != nil {
		return "", err
	}
	for _, probe := range probes {
		err := b.pollUntilOK(ctx, func(ctx context.Context) error {
			_, err := b.newResourceClient(probe).
				Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			return err
		})
		if err != nil {
			return "", fmt.Errorf("wait until project %q can be used: %w", name, err)
		}
	}
	return namespace, nil
}

// applyTemplate applies the objects of a template. It retries for a while, as the
// server may not know the earlier objects yet.
func (b *Bed) applyTemplate(ctx context.Context, name string, values map[string]any) error {
	list, err := renderTemplate(name, values)
	if err != nil {
		return err
	}
	for _, o := range list {
		err := b.pollUntilOK(ctx, func(ctx context.Context) error {
			_, err := b.newResourceClient(o).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "gardenbed", Force: true})
			return err
		})
		if err != nil {
			return fmt.Errorf("apply %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// newResourceClient returns the client for the resource and namespace of an object.
func (b *Bed) newResourceClient(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind()) // correct for all objects here
	return b.client.Resource(plural).Namespace(o.GetNamespace())
}

// renderTemplate returns the objects of a template.
func renderTemplate(name string, values map[string]any) ([]*unstructured.Unstructured, error) {
	text, err := objects.ReadFile("objects/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Funcs(template.FuncMap{"list": func(items ...string) []string { return items }}).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return nil, err
	}
	var list []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(&b))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(u.Object) > 0 {
			list = append(list, u)
		}
	}
}
