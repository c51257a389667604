package execcli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// where holds the flags for the host cluster.
type where struct {
	cli.HostFlags

	namespace string
}

// cluster is a client of the host cluster for executions.
type cluster struct {
	client.WithWatch

	namespace string
}

// newClusterClient returns a client of the host cluster. It sends no request.
func (s *session) newClusterClient() (*cluster, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := s.where.Connect(s.env, scheme, newRESTMapper())
	if err != nil {
		return nil, err
	}
	return &cluster{c, s.where.namespace}, nil
}

// newRESTMapper maps the kinds in use, so that no discovery request is needed.
func newRESTMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	return m
}

// currentUser returns the user name that the API server sees.
func (c *cluster) currentUser(ctx context.Context) (string, error) {
	me, _, err := executions.CurrentUser(ctx, c)
	if err != nil {
		return "", explainError(err, "get the current user")
	}
	return me, nil
}

// getExecution reads one execution by its name, with or without the kind prefix of kubectl.
func (c *cluster) getExecution(ctx context.Context, name string) (*v1alpha1.KubernetesExecution, error) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	var ke v1alpha1.KubernetesExecution
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &ke)
	if apierrors.IsNotFound(err) && !cli.IsUnservedKind(err) {
		notFound := fmt.Errorf("execution %q not found in namespace %q", name, c.namespace)
		return nil, cli.NewError(notFound, cli.CodePrecondition, "fleetloop exec get --namespace="+c.namespace+"   lists executions")
	}
	if err != nil {
		return nil, c.explainErrorWithRole(err, fmt.Sprintf("get execution %q", name), v1alpha1.ViewerRole)
	}
	return &ke, nil
}

// selection selects executions.
type selection struct {
	labels, action, phase string
	name                  string
}

func (s selection) listOptions(namespace string) *client.ListOptions {
	var fields []string
	if s.action != "" {
		fields = append(fields, "spec.action="+s.action)
	}
	if s.phase != "" {
		fields = append(fields, "status.phase="+s.phase)
	}
	if s.name != "" {
		fields = append(fields, "metadata.name="+s.name)
	}
	return &client.ListOptions{
		Namespace: namespace,
		Raw: &metav1.ListOptions{
			LabelSelector: s.labels,
			FieldSelector: strings.Join(fields, ","),
		},
	}
}

func (c *cluster) listExecutions(ctx context.Context, s selection) (*v1alpha1.KubernetesExecutionList, error) {
	var list v1alpha1.KubernetesExecutionList
	if err := c.List(ctx, &list, s.listOptions(c.namespace)); err != nil {
		return nil, c.explainErrorWithRole(err, "list executions", v1alpha1.ViewerRole)
	}
	return &list, nil
}

// explainErrorWithRole explains an error and names the required role if permission is missing. A denial
// by an admission policy keeps its own explanation.
func (c *cluster) explainErrorWithRole(err error, doing, role string) error {
	if _, ok := errors.AsType[*executions.StateError](err); ok {
		return explainStateError(err)
	}
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		next := "ask an administrator for the role " + role + " in namespace " + c.namespace + ", or ask a user who has it"
		return cli.NewError(fmt.Errorf("%s: %w", doing, err), cli.CodeFailed, next)
	}
	return explainError(err, doing)
}

// explainError adds advice to an error of the API server.
func explainError(err error, doing string) error {
	return cli.ExplainHostError(err, doing, v1alpha1.Kind)
}

// explainStateError adds the next step to an error about the state of an execution.
func explainStateError(err error) error {
	state, ok := errors.AsType[*executions.StateError](err)
	if !ok {
		return err
	}
	return cli.NewError(err, cli.CodePrecondition, state.Hint)
}
