// Package gardener_test applies what is shipped for a garden cluster to a real
// one.
package gardener_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	manifest = "cluster-worker.yaml"
	account  = "fleetloop-cluster-worker"
)

func TestMain(m *testing.M) { kubebedtest.GardenMain(m, gardenbed.Options{}) }

// TestRights: what is shipped gives a worker the rights that it needs, so that
// nothing is left to complain of, and none to speak of besides.
func TestRights(t *testing.T) {
	_, ns := kubebedtest.NewGardenProject(t)
	bed := kubebedtest.Garden(t).Kube()
	raw, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster-worker.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(raw), "garden-fundament", ns)), 0o600); err != nil { //nolint:gosec // a file of the test
		t.Fatal(err)
	}
	if out, err := bed.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rc, err := bed.EnsureServiceAccountConfig(t.Context(), ns, account)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := gardener.NewForConfig(rc, gardener.Config{Namespace: ns}, gardentest.Installation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)

	kubebedtest.Eventually(t, func(ctx context.Context) error { // roles take some moments to be in force
		for _, f := range worker.CheckAccess(ctx, "local") {
			if f.Level != gardener.Fine {
				return fmt.Errorf("%s: %s: %s", f.Level, f.Subject, f.Message)
			}
		}
		return nil
	})
	wantWork(t, worker)

	client := kubernetes.NewForConfigOrDie(rc)
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Namespace: ns, Verb: "get", Resource: "secrets"},
		{Namespace: ns, Verb: "create", Group: "core.gardener.cloud", Resource: "shoots", Subresource: "adminkubeconfig"},
		{Namespace: ns, Verb: "deletecollection", Group: "core.gardener.cloud", Resource: "shoots"},
		{Namespace: ns, Verb: "patch", Group: "security.gardener.cloud", Resource: "credentialsbindings"},
		{Namespace: "default", Verb: "get", Group: "core.gardener.cloud", Resource: "shoots"},
		{Verb: "list", Resource: "namespaces"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status.Allowed {
			t.Errorf("it may %s %s %s in %q", attributes.Verb, attributes.Resource, attributes.Subresource, attributes.Namespace)
		}
	}
}

// wantWork has a worker do all that it does.
func wantWork(t *testing.T, worker *gardener.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := gardentest.NewManifest("a", 1)
	if err := worker.DryRunShoot(ctx, m); err != nil {
		t.Errorf("preflight: %v", err)
	}
	for i, seen := range []bool{false, true} {
		if _, err := worker.ApplyShoot(ctx, gardentest.NewManifest("a", int64(i)+1), seen); err != nil {
			t.Errorf("apply, seen %t: %v", seen, err)
		}
	}
	if list, err := worker.ListShoots(ctx); err != nil || len(list.Shoots) != 1 {
		t.Errorf("list: %d, %v", len(list.Shoots), err)
	}
	ref := shoot.Ref{Name: "a", Cluster: m.Metadata.Labels[shoot.LabelCluster], Installation: gardentest.Installation}
	if _, err := worker.DeleteShoot(ctx, ref); err != nil {
		t.Errorf("delete: %v", err)
	}
}
