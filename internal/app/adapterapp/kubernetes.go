package adapterapp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A kubeAction applies or deletes one object.
type kubeAction struct {
	kube     client.Client
	manager  string
	manifest value
	remove   bool
}

func (c *compiler) compileObjectAction(key string, a kubeAction, manifest settings.Tree) action {
	if _, ok := manifest.Value.(map[string]any); !ok {
		c.recordError(key, errors.New("manifest must be a mapping"))
		return nil
	}
	a.manifest = c.compileTree(key+".manifest", manifest.Value, c.resource)
	return a
}

// prepareStep implements action.
func (a kubeAction) prepareStep(s *scope) (step, error) {
	v, err := a.manifest(s)
	if err != nil {
		return nil, err
	}
	fields, _ := v.(map[string]any) // by the compiler
	obj := &unstructured.Unstructured{Object: fields}
	if obj.GetAPIVersion() == "" || obj.GetKind() == "" || obj.GetName() == "" {
		return nil, errors.New("the manifest needs apiVersion, kind and metadata.name")
	}
	return kubeStep{a, obj}, nil
}

type kubeStep struct {
	action kubeAction
	object *unstructured.Unstructured
}

// describeForDryRun implements step.
func (k kubeStep) describeForDryRun() map[string]any {
	verb := "apply"
	if k.action.remove {
		verb = "remove"
	}
	return map[string]any{verb: k.object.Object, "fieldManager": k.action.manager}
}

// runStep implements step.
func (k kubeStep) runStep(ctx context.Context) (map[string]any, error) {
	what := fmt.Sprintf("%s %q", k.object.GetKind(), k.object.GetName())
	if k.action.remove {
		exists, err := k.deleteAppliedObject(ctx)
		if err != nil {
			return nil, fmt.Errorf("delete %s: %w", what, err)
		}
		return map[string]any{"exists": exists}, nil
	}
	applied := k.object.DeepCopy()
	err := k.action.kube.Apply(
		ctx,
		client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner(k.action.manager),
		client.ForceOwnership,
	)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		return nil, adapter.Permanent(fmt.Errorf("apply %s: %w", what, err))
	case err != nil:
		return nil, fmt.Errorf("apply %s: %w", what, err)
	}
	return map[string]any{"object": applied.Object}, nil
}

// deleteAppliedObject deletes the object if this adapter applied it, and reports whether it still exists.
func (k kubeStep) deleteAppliedObject(ctx context.Context) (stillExists bool, err error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(k.object.GroupVersionKind())
	err = k.action.kube.Get(ctx, client.ObjectKeyFromObject(k.object), found)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	applied := func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == k.action.manager && f.Operation == metav1.ManagedFieldsOperationApply
	}
	if !slices.ContainsFunc(found.GetManagedFields(), applied) {
		return false, adapter.Permanent(fmt.Errorf("the field manager %s did not apply it", k.action.manager))
	}
	uid := found.GetUID()
	err = k.action.kube.Delete(ctx, found, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	err = k.action.kube.Get(ctx, client.ObjectKeyFromObject(k.object), found)
	return err == nil && found.GetUID() == uid, client.IgnoreNotFound(err)
}
