package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	executionv1 "github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// hostTimeout limits the requests to the host cluster.
const hostTimeout = 15 * time.Second

// checkHostClusterAccess checks the connection to the host cluster, that it has the resource of executions, and what the
// user may do with them.
func (d *doctor) checkHostClusterAccess(ctx context.Context, host HostFlags, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	object := "host cluster"
	if host.Context != "" {
		object += " " + host.Context
	}
	c, err := d.connectHost(host)
	if err == nil {
		err = c.List(ctx, &executionv1.KubernetesExecutionList{}, client.InNamespace(namespace), client.Limit(1))
	}
	if err != nil {
		err = ExplainHostError(err, "list executions in namespace "+namespace, executionv1.Kind)
		d.add(finding{levelError, object, err.Error(), "the commands exec, approve and rollback do not work", nextStepFor(err)})
		return
	}
	var refused []string // verbs
	for _, verb := range []string{"create", "patch", "watch"} {
		review := newExecutionAccessReview(verb, namespace)
		if err := c.Create(ctx, review); err != nil {
			d.add(finding{levelError, object, err.Error(), "your permissions are not known", nextStepFor(err)})
			return
		}
		if !review.Status.Allowed {
			refused = append(refused, verb)
		}
	}
	if len(refused) > 0 {
		d.add(finding{
			Level:  levelNote,
			Object: object,
			What:   fmt.Sprintf("you may not %s executions in namespace %s", strings.Join(refused, ", "), namespace),
			Why:    "you can see executions, but not request or decide them",
			Fix:    "ask an administrator for the role " + executionv1.RequesterRole + " in namespace " + namespace + ", if you need it",
		})
		return
	}
	d.add(finding{Level: levelOK, Object: object, What: "you may list, watch, create and patch executions in namespace " + namespace})
}

// newExecutionAccessReview asks whether the user may use a verb on executions.
func newExecutionAccessReview(verb, namespace string) *authorizationv1.SelfSubjectAccessReview {
	return &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace,
				Verb:      verb,
				Group:     executionv1.GroupVersion.Group,
				Resource:  "kubernetesexecutions",
			},
		},
	}
}

func (d *doctor) connectHost(host HostFlags) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(executionv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, executionv1.GroupVersion)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(executionv1.GroupVersion.WithKind(executionv1.Kind), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return host.Connect(d.session.env, scheme, mapper)
}
