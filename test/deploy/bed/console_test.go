package bed_test

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestConsole applies the console with everything that can be chosen, and asks the API server what its
// account may do: read the three kinds and ask for the rights of others.
func TestConsole(t *testing.T) {
	ns, c := restricted(t), newCluster(t)
	objects, _, err := deploy.Release{Chart: chartDir, Namespace: ns, Values: newValues(t, `
fullnameOverride: `+ns+`
commonLabels: {team: fleet}
global: {changeEvents: {enabled: true, endpoint: https://e.example.com, clusterName: a}}
fleetApi: {enabled: false}
sentinel: {enabled: false}
console:
  enabled: true
  publicURL: https://fleet.example.com/ops/console/
  api: {url: https://api.example.com}
  auth: {mode: oidc, oidc: {issuer: https://login.example.com, clientID: console, clientSecretRef: {name: oidc}, scopes: [openid, groups]}}
  hosts: [{name: here, executionNamespace: acting}, {name: eu, kubeconfigSecretRef: {name: eu, key: config}, assumeUsers: true}]
  tls: {existingSecret: cert}
  ingress: {enabled: true, className: nginx, tlsSecret: cert, annotations: {a: b}}
  metrics: {tokenSecret: scrape}
  networkPolicy: {from: [{namespaceSelector: {}}], metricsFrom: [{namespaceSelector: {}}], egress: []}
`)}.Render()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.withdraw(t, objects) })
	c.wantApplied(t, objects, ns)

	account := "system:serviceaccount:" + ns + ":" + ns + "-console"
	client := kubernetes.NewForConfigOrDie(kubebedtest.Bed(t).Config())
	allows := func(ctx context.Context, on authorizationv1.ResourceAttributes) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &on}}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	kinds := map[string]string{"kubernetesexecutions": "kubernetesexecution.kubernaut.io", "nodefaults": "fleetloop.io", "sentinelconfigs": "hyperfleet.redhat.com"}
	kubebedtest.Eventually(t, func(ctx context.Context) error { // the authorizer has seen the binding
		for resource, group := range kinds {
			if !allows(ctx, authorizationv1.ResourceAttributes{Verb: "watch", Group: group, Resource: resource}) {
				return errors.New("the account may not watch " + resource)
			}
		}
		return nil
	})
	if !allows(t.Context(), authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}) {
		t.Error("the account may not ask for the rights of others")
	}
	for resource, group := range kinds {
		for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
			if allows(t.Context(), authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}) {
				t.Errorf("the account may %s %s", verb, resource)
			}
		}
	}
	for _, on := range []authorizationv1.ResourceAttributes{
		{Verb: "impersonate", Resource: "users"},
		{Verb: "impersonate", Resource: "groups"},
		{Verb: "impersonate", Resource: "serviceaccounts"},
		{Verb: "get", Resource: "secrets"},
		{Verb: "list", Resource: "pods"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
	} {
		if allows(t.Context(), on) {
			t.Errorf("the account may %s %s/%s", on.Verb, on.Resource, on.Subresource)
		}
	}
}
