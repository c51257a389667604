package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A looker sees the guard of a cluster.
type looker struct {
	options    Options
	client     kubernetes.Interface
	executions dynamic.ResourceInterface
}

// look compares what is there with what should be, and then tries it.
func (l looker) look(ctx context.Context) (time.Time, error) {
	since, err := l.present(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return since, l.tried(ctx)
}

// present says since when all objects are there as they should be.
func (l looker) present(ctx context.Context) (since time.Time, err error) {
	client, mine := l.client.AdmissionregistrationV1(), metav1.ListOptions{LabelSelector: l.label()}
	policies, err := client.ValidatingAdmissionPolicies().List(ctx, mine)
	if err != nil {
		return since, unknownError{fmt.Errorf("list the policies of the guard: %w", err)}
	}
	bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, mine)
	if err != nil {
		return since, unknownError{fmt.Errorf("list the bindings of the guard: %w", err)}
	}
	there := map[string]found{}
	for _, p := range policies.Items {
		there["ValidatingAdmissionPolicy "+p.Name] = found{p.Spec, p.CreationTimestamp.Time}
	}
	for _, b := range bindings.Items {
		there["ValidatingAdmissionPolicyBinding "+b.Name] = found{b.Spec, b.CreationTimestamp.Time}
	}
	for _, o := range Objects(l.options) {
		var name string
		var spec any
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			name, spec = o.Kind+" "+o.Name, o.Spec
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			name, spec = o.Kind+" "+o.Name, o.Spec
		}
		f, ok := there[name]
		switch {
		case !ok:
			return since, fmt.Errorf("%s is not there: apply the manifests of the guard", name)
		case !apiequality.Semantic.DeepEqual(f.spec, spec):
			return since, fmt.Errorf("%s is not as this version has it: apply the manifests of the guard", name)
		case f.created.After(since):
			since = f.created
		}
	}
	return since, nil
}

// found is an object that is there.
type found struct {
	spec    any
	created time.Time
}

// tried says whether the API server goes by the policies, by the trial of a
// forged approval.
func (l looker) tried(ctx context.Context) error {
	canary := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"action":    "guard_canary",
			"reason":    "a trial, never stored: an approval that nobody gave has to be refused",
			"approvals": []any{map[string]any{"approver": "nobody", "decision": string(v1alpha1.Approve), "planHash": "none"}},
		},
	}}
	canary.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	canary.SetGenerateName("guard-canary-")
	_, err := l.executions.Create(ctx, canary, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	policy := "'" + l.options.Namespace + "-" + policyRequests + "'"
	switch {
	case err == nil:
		return fmt.Errorf("an approval that nobody gave was not refused: the API server does not go by %s", policy)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy) && strings.Contains(err.Error(), forged):
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return fmt.Errorf("try whether a forged approval is refused: %w", err)
	default:
		return unknownError{fmt.Errorf("try whether a forged approval is refused: %w", err)}
	}
}

// follow tells of every change of the objects.
func (l looker) follow(ctx context.Context, changed func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = l.label() }))
	tell := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	group := factory.Admissionregistration().V1()
	for _, informer := range []cache.SharedIndexInformer{group.ValidatingAdmissionPolicies().Informer(), group.ValidatingAdmissionPolicyBindings().Informer()} {
		// It fails only for an informer that has ended.
		_, _ = informer.AddEventHandler(tell)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func (l looker) label() string { return labelGuard + "=" + l.options.Namespace }
