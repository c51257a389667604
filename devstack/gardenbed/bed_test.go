package gardenbed_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// TestShootsAreAccepted covers that a Shoot of every provider is accepted, and returned
// with Gardener's defaults.
func TestShootsAreAccepted(t *testing.T) {
	t.Parallel()
	_, namespace := kubebedtest.NewGardenProject(t)
	shoots := shootsOf(t, kubebedtest.Garden(t), namespace)
	for _, provider := range gardenbed.Providers() {
		s, err := create(t, shoots, newShoot(provider, "of-"+provider))
		if err != nil {
			t.Errorf("of %s: %v", provider, err)
			continue
		}
		if at(s, "metadata", "generation") != "1" || at(s, "spec", "maintenance", "timeWindow") == "<nil>" {
			t.Errorf("of %s it lacks what Gardener adds: %v", provider, s.Object)
		}
	}
}

// TestShootsAreRefused covers that the garden rejects invalid Shoots as Gardener does.
func TestShootsAreRefused(t *testing.T) {
	t.Parallel()
	project, namespace := kubebedtest.NewGardenProject(t)
	shoots := shootsOf(t, kubebedtest.Garden(t), namespace)
	longest := strings.Repeat("x", 21-len(project))
	cases := map[string]struct {
		reason string
		name   string
		change func(spec object)
		is     func(error) bool
		want   string
	}{
		"Longest":  {reason: "with the project's name it is 21 characters", name: longest},
		"TooLong":  {reason: "and this one more", name: longest + "x", is: apierrors.IsInvalid, want: "must not exceed 21"},
		"Version":  {reason: "the profile has no such version", change: func(spec object) { spec["kubernetes"] = object{"version": "1.34.99"} }, is: apierrors.IsForbidden, want: "supported values"},
		"Region":   {reason: "nor this region", change: func(spec object) { spec["region"] = "moon" }, is: apierrors.IsForbidden, want: "moon"},
		"Field":    {reason: "fields are checked", change: func(spec object) { spec["colour"] = "red" }, is: apierrors.IsBadRequest, want: `unknown field "spec.colour"`},
		"Binding":  {reason: "no credentials", change: func(spec object) { delete(spec, "credentialsBindingName") }, is: apierrors.IsInvalid, want: "must be set"},
		"Provider": {reason: "credentials of another", change: func(spec object) { spec["credentialsBindingName"] = "aws" }, is: apierrors.IsForbidden, want: "provider"},
		"Network":  {reason: "nobody registered it", change: func(spec object) { spec["networking"] = object{"type": "string"} }, is: apierrors.IsForbidden, want: "string"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "" {
				tc.name = strings.ToLower(name)
			}
			s := newShoot("local", tc.name)
			if tc.change != nil {
				tc.change(s.Object["spec"].(object)) //nolint:errcheck,forcetypeassert // newShoot makes it
			}
			_, err := create(t, shoots, s)
			if tc.is == nil && err == nil {
				return
			}
			if tc.is == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
			}
		})
	}
}

// TestLife covers that a Shoot is created, changed and deleted, according to its
// status.
func TestLife(t *testing.T) {
	t.Parallel()
	bed := kubebedtest.Garden(t)
	_, namespace := kubebedtest.NewGardenProject(t)
	kubebedtest.StartGardenlet(t, bed, gardenbed.GardenletOptions{Namespace: namespace})
	shoots := shootsOf(t, bed, namespace)
	if _, err := create(t, shoots, newShoot("aws", "life")); err != nil {
		t.Fatal(err)
	}
	s := eventually(t, shoots, "life", "Create Succeeded")
	want := map[string]string{"finalizers": "[gardener]", "progress": "100", "technical id": "shoot--" + namespace + "--life"}
	got := map[string]string{
		"finalizers": fmt.Sprint(s.GetFinalizers()), "progress": at(s, "status", "lastOperation", "progress"), "technical id": at(s, "status", "technicalID"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("made, it is (-want +got):\n%s", d)
	}
	newer := []byte(`{"spec":{"kubernetes":{"version":"1.34.3"}}}`)
	if _, err := shoots.Patch(t.Context(), "life", types.MergePatchType, newer, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, shoots, "life", "Reconcile Succeeded")
	if err := shoots.Delete(t.Context(), "life", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without confirmation it is deleted: %v", err)
	}
	deletion(t, shoots, "life")
	wantGone(t, shoots, "life")
}

// TestFaults covers that injected faults affect only their Shoot, and only until they
// are withdrawn.
func TestFaults(t *testing.T) {
	t.Parallel()
	bed := kubebedtest.Garden(t)
	_, namespace := kubebedtest.NewGardenProject(t)
	g := kubebedtest.StartGardenlet(t, bed, gardenbed.GardenletOptions{Namespace: namespace})
	shoots := shootsOf(t, bed, namespace)
	g.SetFault("errs", gardenbed.Error)
	g.SetFault("fails", gardenbed.Failed)
	for _, name := range []string{"errs", "fails", "marked", "well"} {
		s := newShoot("local", name)
		if name == "marked" {
			s.SetAnnotations(map[string]string{gardenbed.FaultAnnotation: string(gardenbed.Error)})
		}
		if _, err := create(t, shoots, s); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, shoots, "well", "Create Succeeded")
	eventually(t, shoots, "marked", "Create Error")
	eventually(t, shoots, "errs", "Create Error")
	g.SetFault("errs", gardenbed.None)
	eventually(t, shoots, "errs", "Create Succeeded")

	failed := eventually(t, shoots, "fails", "Create Failed")
	g.SetFault("fails", gardenbed.None)
	again := []byte(`{"metadata":{"annotations":{"gardener.cloud/operation":"retry"}}}`)
	if _, err := shoots.Patch(t.Context(), "fails", types.MergePatchType, again, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := eventually(t, shoots, "fails", "Create Succeeded"); s.GetGeneration() != failed.GetGeneration()+1 {
		t.Errorf("a retry is generation %d after %d", s.GetGeneration(), failed.GetGeneration())
	}

	g.SetFault("well", gardenbed.Unhealthy)
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		s, err := shoots.Get(ctx, "well", metav1.GetOptions{})
		if err == nil && !strings.Contains(at(s, "status", "conditions"), "EveryNodeReadyFalse") {
			err = fmt.Errorf("its conditions are %s", at(s, "status", "conditions"))
		}
		return err
	})
	g.SetFault("well", gardenbed.Stuck)
	deletion(t, shoots, "well")
	eventually(t, shoots, "well", "Delete Processing")
	g.SetFault("well", gardenbed.None)
	wantGone(t, shoots, "well")
}

// TestGardenAway covers that the API of Gardener can be unavailable while that of
// Kubernetes works, and that work in progress continues afterwards.
func TestGardenAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bed")
	bed := start(t, gardenbed.Options{Kube: kubebed.Options{Dir: dir}})
	g := kubebedtest.StartGardenlet(t, bed, gardenbed.GardenletOptions{})
	g.SetFault("away", gardenbed.Stuck)
	shoots := shootsOf(t, bed, bed.Namespace())
	if _, err := create(t, shoots, newShoot("local", "away")); err != nil {
		t.Fatal(err)
	}
	eventually(t, shoots, "away", "Create Processing")
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	g.SetFault("away", gardenbed.None)
	if _, err := shoots.Get(t.Context(), "away", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("after its end it answers %v", err)
	}
	if _, err := bed.Kube().Kubectl(t.Context(), "get", "namespace", bed.Namespace()); err != nil {
		t.Errorf("Kubernetes is away, too: %v", err)
	}
	if err := bed.Ready(); err == nil || !strings.Contains(err.Error(), "Gardener was stopped") {
		t.Errorf("Ready() = %v", err)
	}
	for range 2 { // the second has nothing to do
		if err := bed.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := bed.Ready(); err != nil {
		t.Errorf("Ready() = %v", err)
	}
	eventually(t, shoots, "away", "Create Succeeded")
}

// TestOnAControlPlane covers that a garden can use a running control plane, which
// outlives it, and the same one again.
func TestOnAControlPlane(t *testing.T) {
	t.Parallel()
	kube, err := kubebed.Start(t.Context(), kubebed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	first := start(t, gardenbed.Options{On: kube})
	if _, err := create(t, shootsOf(t, first, first.Namespace()), newShoot("local", "kept")); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := kube.Ready(); err != nil {
		t.Errorf("the control plane has ended with it: %v", err)
	}
	second := start(t, gardenbed.Options{On: kube})
	if _, err := shootsOf(t, second, second.Namespace()).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the Shoot of before: %v", err)
	}
}

// TestStartRefuses covers that a failed start returns the reason, and leaves nothing.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]gardenbed.Options{
		"gardener-apiserver: no such file": {Assets: t.TempDir()},
		"unknown flag: --nosuch":           {Args: []string{"--nosuch"}},
		"service range":                    {Kube: kubebed.Options{ServiceRange: "ten"}},
	} {
		bed, err := gardenbed.Start(t.Context(), o)
		if err == nil {
			_ = bed.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	bed := kubebedtest.Garden(t)
	if _, err := gardenbed.Start(t.Context(), gardenbed.Options{On: bed.Kube()}); err == nil || !strings.Contains(err.Error(), "has one already") {
		t.Errorf("a second garden on a control plane gives %v", err)
	}
	if _, err := bed.ApplyProjectAndWait(t.Context(), "Capitals"); err == nil || !strings.Contains(err.Error(), "Capitals") {
		t.Errorf("a project that can not be gives %v", err)
	}
}

// TestRoles covers that Gardener uses the authorization of the control plane.
func TestRoles(t *testing.T) {
	t.Parallel()
	bed := kubebedtest.Garden(t)
	_, namespace := kubebedtest.NewGardenProject(t)
	jane, err := bed.WriteUserKubeconfig("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	get := []string{"--kubeconfig=" + jane, "-n", namespace, "get", "shoots"}
	if _, err := bed.Kube().Kubectl(t.Context(), get...); err == nil || !strings.Contains(err.Error(), `User "jane" cannot list resource "shoots"`) {
		t.Errorf("without a role jane lists Shoots: %v", err)
	}
	for _, args := range [][]string{
		{"-n", namespace, "create", "role", "readers", "--verb=list", "--resource=shoots.core.gardener.cloud"},
		{"-n", namespace, "create", "rolebinding", "readers", "--role=readers", "--group=readers"},
	} {
		if _, err := bed.Kube().Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := bed.Kube().Kubectl(ctx, get...)
		return err
	})
}
