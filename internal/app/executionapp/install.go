package executionapp

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// installer is the field manager of installed objects.
const installer = "fleetloop-install"

// Targets lists the objects that actions may change.
type Targets struct {
	// Namespaces are the namespaces of actions. Install creates missing ones.
	Namespaces []string
	// Secrets are the names of the Secrets that update_secret may change there. Manifests are the
	// kinds that apply_manifest may apply and delete, such as configmaps or apps/deployments. Both
	// actions have no other rights.
	Secrets, Manifests []string
}

// ApplyRequiredObjects applies the objects that executions need beside their CustomResourceDefinition and the
// controller. These are the namespace, the accounts and rights, the approval guard and, unless
// policies exist, the shipped policies. It updates existing objects.
func ApplyRequiredObjects(ctx context.Context, host *rest.Config, cfg Part, targets Targets) error {
	c, err := client.New(host, client.Options{})
	if err != nil {
		return fmt.Errorf("install executions: %w", err)
	}
	files, err := deploy.PolicyFiles()
	if err != nil {
		return fmt.Errorf("install executions: %w", err)
	}
	for _, o := range listRequiredObjects(cfg, targets) {
		if err := applyObject(ctx, c, o); err != nil {
			return fmt.Errorf("install executions: %w", err)
		}
	}
	// The policies are created and not applied, so that a change of the cluster's administrator stays.
	err = c.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: cfg.Policy.ConfigMap, Namespace: cfg.Namespace},
		Data:       files,
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install executions: create ConfigMap %q: %w", cfg.Policy.ConfigMap, err)
	}
	return applyMutatingPoliciesIfServed(ctx, c, cfg)
}

// listRequiredObjects returns the objects for any cluster.
func listRequiredObjects(cfg Part, targets Targets) []runtime.Object {
	var list []runtime.Object
	for _, name := range append([]string{cfg.Namespace}, targets.Namespaces...) {
		list = append(list, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}
	rights := roles.Actions{Namespace: cfg.Namespace, Secrets: targets.Secrets, Manifests: targets.Manifests}
	for _, a := range action.Catalogue() {
		if a.NoJob {
			continue // it changes no object
		}
		list = append(list, rights.BaseObjects(a)...)
		list = append(list, rights.NamespaceBindings(a, targets.Namespaces...)...)
	}
	list = append(list, rights.SecretLookupAccountAndRole()...)
	list = append(list, rights.SecretLookupRoleBindings(targets.Namespaces...)...)
	list = append(list, roles.Controller{Namespace: cfg.Namespace}.Objects()...)
	for _, r := range roles.RequesterClusterRolesUpToRisk() {
		list = append(list, r)
	}
	list = append(list, roles.ApproverClusterRole(), roles.AdministratorClusterRole(), roles.ViewerClusterRole())
	return slices.Concat(
		list,
		guard.ValidatingPolicyObjects(cfg.toGuardOptions()),
		guard.WrongNamespaceWarningObjects(cfg.toGuardOptions()),
	)
}

// applyMutatingPoliciesIfServed applies objects that only Kubernetes 1.36 and later support.
func applyMutatingPoliciesIfServed(ctx context.Context, c client.Client, cfg Part) error {
	for _, o := range guard.MutatingPolicyObjects(cfg.toGuardOptions()) {
		err := applyObject(ctx, c, o)
		if meta.IsNoMatchError(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("install executions: %w", err)
		}
	}
	return nil
}

// applyObject applies one object.
func applyObject(ctx context.Context, c client.Client, o runtime.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: fields}
	delete(u.Object, "status")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner(installer)); err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
