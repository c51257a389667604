package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

// observer reads and tests the guard of a cluster.
type observer struct {
	options Options
	client  kubernetes.Interface
	servers *apiServers
	record  *periodRecord
}

// observeAndRecordPeriod compares the objects with the expected ones, tests every visible API server, and returns
// the current period.
func (l observer) observeAndRecordPeriod(ctx context.Context) (observation, error) {
	began := time.Now()
	objects, err := l.readVerifiedVersions(ctx)
	if err != nil {
		if !IsUnknown(err) {
			l.record.recordGap(ctx, began)
		}
		return observation{}, err
	}
	if err := l.verifyServersEnforcePolicies(ctx); err != nil {
		if IsUnknown(err) {
			return observation{}, err
		}
		if failed := l.record.endPeriod(ctx); failed != nil {
			err = fmt.Errorf("%w; %s", err, failed.Error()) // not an unknownError
		}
		return observation{}, err
	}
	p, err := l.record.currentOrBeginPeriod(ctx, objects)
	return observation{objects, p}, err
}

// readVerifiedVersions returns the UID and generation of each object of the guard. It fails if an object is
// missing or different. The result changes with every change of an object.
func (l observer) readVerifiedVersions(ctx context.Context) (versions string, err error) {
	stored, err := l.listPoliciesAndBindings(ctx)
	if err != nil {
		return "", err
	}
	var objects []string
	for _, o := range ValidatingPolicyObjects(l.options) {
		var name string
		var spec any
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			name, spec = o.Kind+" "+o.Name, o.Spec
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			name, spec = o.Kind+" "+o.Name, o.Spec
		}
		found, ok := stored[name]
		switch {
		case !ok:
			return "", fmt.Errorf("%s is missing: apply deploy/admission-policies", name)
		case !apiequality.Semantic.DeepEqual(found.spec, spec):
			return "", fmt.Errorf("%s differs from the one of this version: apply deploy/admission-policies", name)
		}
		objects = append(objects, fmt.Sprintf("%s %s %d", name, found.meta.UID, found.meta.Generation))
	}
	slices.Sort(objects)
	return strings.Join(objects, "\n"), nil
}

// storedObject is an object as it is stored.
type storedObject struct {
	spec any
	meta metav1.ObjectMeta
}

// listPoliciesAndBindings reads the stored objects with the label of the guard.
func (l observer) listPoliciesAndBindings(ctx context.Context) (map[string]storedObject, error) {
	client := l.client.AdmissionregistrationV1()
	ofGuard := metav1.ListOptions{LabelSelector: l.labelSelector()}
	var policies *admissionv1.ValidatingAdmissionPolicyList
	var bindings *admissionv1.ValidatingAdmissionPolicyBindingList
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		policies, err = client.ValidatingAdmissionPolicies().List(ctx, ofGuard)
		if err != nil {
			return unknownError{fmt.Errorf("list admission policies: %w", err)}
		}
		return nil
	})
	g.Go(func() (err error) {
		bindings, err = client.ValidatingAdmissionPolicyBindings().List(ctx, ofGuard)
		if err != nil {
			return unknownError{fmt.Errorf("list admission policy bindings: %w", err)}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	stored := map[string]storedObject{}
	for _, p := range policies.Items {
		stored["ValidatingAdmissionPolicy "+p.Name] = storedObject{p.Spec, p.ObjectMeta}
	}
	for _, b := range bindings.Items {
		stored["ValidatingAdmissionPolicyBinding "+b.Name] = storedObject{b.Spec, b.ObjectMeta}
	}
	return stored, nil
}

// verifyServersEnforcePolicies verifies that the API servers enforce the policies, by sending a forged approval to
// each. Servers that cannot be reached individually are skipped. If one accepts the approval, the
// answers of the others do not matter.
func (l observer) verifyServersEnforcePolicies(ctx context.Context) error {
	direct, err := l.servers.connectListedServers(ctx)
	if err != nil {
		return err
	}
	var verifying sync.WaitGroup
	results := make(chan error, 1+len(direct))
	verifying.Go(func() { results <- l.verifyForgeryRejected(ctx, l.servers.executions) })
	for address, executions := range direct {
		verifying.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, serverTimeout, errServerTimeout)
			defer cancel()
			err := l.verifyForgeryRejected(ctx, executions)
			unreachable := IsUnknown(err) && !isServerRefusal(err)
			if err != nil && !unreachable {
				results <- fmt.Errorf("API server %s: %w", address, err)
			}
		})
	}
	verifying.Wait()
	close(results)
	var unproven error
	for err := range results {
		if err != nil && !IsUnknown(err) {
			return err
		}
		unproven = cmp.Or(unproven, err)
	}
	return unproven
}

// verifyForgeryRejected sends a forged approval to an API server as a dry run. A refusal for another
// reason than the policy is an unknownError: it shows neither that the API server enforces the
// policy nor that it accepts such an approval. A starting API server refuses requests while it
// lacks roles, the CustomResourceDefinition or a ready plugin.
func (l observer) verifyForgeryRejected(ctx context.Context, executions dynamic.ResourceInterface) error {
	canary := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"action":    "guard_canary",
			"reason":    "self-test of the admission policies with dry-run, never stored: this forged approval must be rejected",
			"approvals": []any{map[string]any{"approver": "nobody", "decision": string(v1alpha1.Approve), "planHash": "none"}},
		},
	}}
	canary.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	canary.SetGenerateName("guard-canary-")
	_, err := executions.Create(ctx, canary, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	policy := "'" + l.options.Namespace + "-" + policyRequests + "'"
	if err == nil {
		return fmt.Errorf("a forged approval was not rejected: the API server does not enforce %s yet", policy)
	}
	namesPolicy := strings.Contains(err.Error(), policy) && strings.Contains(err.Error(), forged)
	if namesPolicy && apierrors.IsForbidden(err) {
		return nil
	}
	return unknownError{fmt.Errorf("test that a forged approval is rejected: %w", err)}
}

// isServerRefusal reports whether err is the refusal of an API server that answers requests.
func isServerRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// watchObjects calls onChange on every change of the objects.
func (l observer) watchObjects(ctx context.Context, onChange func()) {
	ofGuard := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = l.labelSelector() })
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, ofGuard)
	notify := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { onChange() },
		UpdateFunc: func(any, any) { onChange() },
		DeleteFunc: func(any) { onChange() },
	}
	group := factory.Admissionregistration().V1()
	_, _ = group.ValidatingAdmissionPolicies().Informer().AddEventHandler(notify)       // fails only for a stopped informer
	_, _ = group.ValidatingAdmissionPolicyBindings().Informer().AddEventHandler(notify) // likewise
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func (l observer) labelSelector() string { return labelGuard + "=" + l.options.Namespace }
