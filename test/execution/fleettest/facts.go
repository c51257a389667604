package fleettest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// imagesPullable is a precondition from the specification.
const imagesPullable = `type: image_pull_secrets_valid
description: "Deployment must have valid image pull secrets"
rego: |
  package precondition
  import future.keywords.if
  allow if { count(input.invalid_secrets) == 0 }
required: true
timeout: "5s"
`

// createExecutionWithSecretCondition requests an execution with the precondition imagesPullable.
func createExecutionWithSecretCondition(f *Fleet, namespace, target, name string) {
	f.Helper()
	var c v1alpha1.Condition
	if err := yaml.UnmarshalStrict([]byte(imagesPullable), &c); err != nil {
		f.Fatal(err)
	}
	ke := newScaleExecution(namespace, target, func(s *v1alpha1.KubernetesExecutionSpec) { s.PreConditions = []v1alpha1.Condition{c} })
	ke.Name = name
	f.CreateExecution(alice, ke)
}

// createDeploymentUsingSecrets creates a Deployment that pulls images with one Secret and reads a password from
// another.
func createDeploymentUsingSecrets(f *Fleet, namespace string) string {
	f.Helper()
	name := uniqueName(f)
	d := f.CreateDeploymentAndAwaitObserved(namespace, name, 3)
	d.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name + "-registry"}}
	d.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-db"}}},
	}
	if err := f.Client.Update(f.Context(), d); err != nil {
		f.Fatal(err)
	}
	return name
}

func createSecret(f *Fleet, namespace, name string, kind corev1.SecretType, key string) {
	f.Helper()
	err := f.Client.Create(f.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: map[string][]byte{key: []byte(`{"auths":{}}`)},
	})
	if err != nil {
		f.Fatal(err)
	}
}

// testImagePullSecretPrecondition evaluates the condition of the specification for Secrets that exist, are missing,
// or have a type that does not allow pulling images.
func testImagePullSecretPrecondition(f *Fleet) {
	name := createDeploymentUsingSecrets(f, f.Cheap)
	createSecret(f, f.Cheap, name+"-db", corev1.SecretTypeOpaque, "password")
	registry := client.ObjectKey{Namespace: f.Cheap, Name: name + "-registry"}
	fails := func(execution string) {
		f.Helper()
		createExecutionWithSecretCondition(f, f.Cheap, name, execution)
		ke := f.AwaitFailure(execution, v1alpha1.ReasonValidationError, v1alpha1.DetailPreConditionFailed)
		if got := ke.Status.ValidationResults.PreConditionResults; len(got) != 1 || got[0].Passed || got[0].ErrorMessage == "" {
			f.Errorf("preconditions %+v", got)
		}
		wantNoJob(f, execution)
	}
	fails(name + "-missing")
	createSecret(f, registry.Namespace, registry.Name, corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey)
	fails(name + "-opaque")
	if err := f.Client.Delete(f.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: registry.Namespace, Name: registry.Name}}); err != nil {
		f.Fatal(err)
	}
	createSecret(f, registry.Namespace, registry.Name, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey)
	createExecutionWithSecretCondition(f, f.Cheap, name, name+"-there")
	ke := f.AwaitPhase(name+"-there", v1alpha1.PhaseRollbackReady)
	if got := ke.Status.ValidationResults.PreConditionResults; len(got) != 1 || !got[0].Evaluated || !got[0].Passed {
		f.Errorf("preconditions %+v", got)
	}
	f.WantReplicas(f.Cheap, name, 5)
}

// testSecretsUnknownWithoutRole verifies the advice in the message if the account that looks up Secrets is not
// bound.
func testSecretsUnknownWithoutRole(f *Fleet) {
	name := createDeploymentUsingSecrets(f, f.Dear)
	createExecutionWithSecretCondition(f, f.Dear, name, name)
	ke := f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailPreConditionFailed)
	for _, says := range []string{"invalid_secrets is unknown", "kubernaut-secret-lookup", "bind its role in namespace"} {
		if !strings.Contains(ke.Status.Message, says) {
			f.Errorf("it says %q, want %q", ke.Status.Message, says)
		}
	}
}

// testPermissionsOKFollowsRoleBinding evaluates a condition on the rights of the action's account in a namespace where it
// has none, then some, then none.
func testPermissionsOKFollowsRoleBinding(f *Fleet) {
	namespace := f.Namespace + "-rights"
	if err := f.Client.Create(f.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"environment": "development"}}}); err != nil {
		f.Fatal(err)
	}
	f.CreateDeploymentAndAwaitObserved(namespace, "web", 3)
	const permitted = "package precondition\nimport future.keywords.if\nallow if { input.serviceAccount.permissionsOk }\n"
	ask := func(name string) {
		f.Helper()
		ke := newScaleExecution(namespace, "web", func(s *v1alpha1.KubernetesExecutionSpec) {
			s.PreConditions = []v1alpha1.Condition{
				{Type: "permitted", Rego: permitted, Required: true, Timeout: &metav1.Duration{Duration: time.Second}},
			}
		})
		ke.Name = name
		f.CreateExecution(alice, ke)
	}
	denied := func(name string) {
		f.Helper()
		ask(name)
		ke := f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailRBACDenied)
		v := ke.Status.ValidationResults
		if v.RBACValidation || len(v.PreConditionResults) != 1 || v.PreConditionResults[0].Passed {
			f.Errorf("checks %+v", v)
		}
		wantNoJob(f, name)
	}
	act, ok := action.Find("scale_deployment")
	if !ok {
		f.Fatal("there is no action scale_deployment")
	}
	denied("rights-none")

	bindings := roles.Actions{Namespace: f.Namespace}.NamespaceBindings(act, namespace)
	binding, ok := bindings[0].(*rbacv1.RoleBinding)
	if !ok || len(bindings) != 1 {
		f.Fatalf("bindings %v", bindings)
	}
	if err := f.Client.Create(f.Context(), binding); err != nil {
		f.Fatal(err)
	}
	awaitDeploymentReadAccess(f, act, namespace, true)
	ask("rights-bound")
	ke := f.AwaitPhase("rights-bound", v1alpha1.PhaseRollbackReady)
	if got := ke.Status.ValidationResults.PreConditionResults; len(got) != 1 || !got[0].Passed {
		f.Errorf("preconditions %+v", got)
	}

	if err := f.Client.Delete(f.Context(), binding); err != nil {
		f.Fatal(err)
	}
	awaitDeploymentReadAccess(f, act, namespace, false)
	denied("rights-taken")
}

// awaitDeploymentReadAccess waits until the authorizer has the rights of an action's account in a namespace.
func awaitDeploymentReadAccess(f *Fleet, act *action.Action, namespace string, allowed bool) {
	f.Helper()
	f.Until(func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + f.Namespace + ":" + act.ServiceAccount(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group:     appsv1.GroupName,
				Resource:  "deployments",
				Verb:      "get",
				Namespace: namespace,
			},
		}}
		if err := f.Client.Create(f.Context(), review); err != nil {
			return err
		}
		if review.Status.Allowed != allowed {
			return fmt.Errorf("the account may get Deployments: %t, want %t", review.Status.Allowed, allowed)
		}
		return nil
	})
}

// testNoTargetPasswordDisclosed makes a condition print its whole input. The status, the events and the log must
// not contain anything that alice may not read.
func testNoTargetPasswordDisclosed(f *Fleet) {
	name := uniqueName(f)
	const password = "hunter2-of-the-shop"
	d := f.CreateDeploymentAndAwaitObserved(f.Cheap, name, 3)
	d.Annotations = map[string]string{"note": password}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: password}}
	c.Args = []string{"--password=" + password}
	if err := f.Client.Update(f.Context(), d); err != nil {
		f.Fatal(err)
	}
	tell := func(what string) string {
		return "package precondition\n\ndefault allow := false\n\nmessage := sprintf(\"%v\", [" + what + "])\n"
	}
	fromThree(f, f.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		second := &metav1.Duration{Duration: time.Second}
		s.PreConditions = []v1alpha1.Condition{
			{Type: "containers", Rego: tell("input.target.object.spec.template.spec.containers"), Required: true, Timeout: second},
			{Type: "target", Rego: tell("input.target"), Timeout: second},
			{Type: "all", Rego: tell("input"), Timeout: second},
			{Type: "annotations", Rego: tell("input.target.annotations"), Timeout: second},
		}
	})
	ke := f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailPreConditionFailed)
	text, err := yaml.Marshal(ke)
	if err != nil {
		f.Fatal(err)
	}
	if strings.Contains(string(text), password) {
		f.Errorf("the execution tells a password of its target:\n%s", text)
	}
	results := ke.Status.ValidationResults.PreConditionResults
	if len(results) != 4 || !strings.Contains(results[0].ErrorMessage, `"name": "PASSWORD"`) || !strings.Contains(results[3].ErrorMessage, "undefined ref: input.target.annotations") {
		f.Errorf("preconditions %+v", results)
	}
	for _, r := range results {
		if len(r.ErrorMessage) > maxTold {
			f.Errorf("condition %q says %d bytes, at most %d may be", r.ConditionType, len(r.ErrorMessage), maxTold)
		}
	}
	awaitFailureEventWithoutText(f, name, password)
	if f.Controller().CheckLogged(password) == nil {
		f.Error("the log tells a password of the target")
	}
}

// maxTold is the maximum length of a condition's message and an event's text.
const maxTold = 1024

// awaitFailureEventWithoutText waits for the event of a failed execution, and verifies that none of its events
// contains a text.
func awaitFailureEventWithoutText(f *Fleet, name, text string) {
	f.Helper()
	f.Until(func() error {
		var list eventsv1.EventList
		if err := f.Client.List(f.Context(), &list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		told := errors.New("no event tells that it failed")
		for _, e := range list.Items {
			if e.Regarding.Name != name {
				continue
			}
			if len(e.Note) > maxTold || strings.Contains(e.Note, text) {
				f.Errorf("event %s says %q", e.Reason, e.Note)
			}
			if e.Reason == "ExecutionFailed" {
				told = nil
			}
		}
		return told
	})
}
