package gardener_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

var errEnough = errors.New("enough")

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// follow watches from the beginning until enough returns true, and returns the events.
func follow(t *testing.T, c *gardener.Client, version string, enough func(shoot.Event) bool) shoot.Event {
	t.Helper()
	var last shoot.Event
	err := c.WatchShoots(patient(t), version, func(e shoot.Event) error {
		if last = e; enough(e) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("the watch ended with %v, after %+v", err, last)
	}
	return last
}

func TestAShootGoesThroughItsLife(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	g := kubebedtest.StartGardenlet(t, bed, gardenbed.GardenletOptions{Namespace: ns, Step: 20 * time.Millisecond})
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	l, err := c.ListShoots(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	g.SetFault("a", gardenbed.Error)
	if _, err := c.ApplyShoot(patient(t), gardentest.NewManifest("a", 1), false); err != nil {
		t.Fatal(err)
	}
	failed := follow(t, c, l.ResourceVersion, func(e shoot.Event) bool {
		return e.Shoot.LastOperation != nil && e.Shoot.LastOperation.State == "Error"
	})
	o := failed.Shoot
	if len(o.LastErrors) == 0 || o.LastErrors[0].Description == "" || o.LastOperation.Type != "Create" || o.LastOperation.Updated.IsZero() {
		t.Errorf("what went wrong is not told: %+v", o)
	}
	g.SetFault("a", gardenbed.None)
	o = follow(t, c, failed.Shoot.ResourceVersion, func(e shoot.Event) bool {
		all := len(e.Shoot.Conditions) > 0 && !slices.ContainsFunc(e.Shoot.Conditions, func(c shoot.Condition) bool { return c.Status != "True" })
		return all && e.Shoot.LastOperation.State == "Succeeded"
	}).Shoot
	if o.ObservedGeneration != o.Generation || o.LastOperation.Progress != 100 || len(o.LastErrors) != 0 {
		t.Errorf("when it is ready it says %+v, %+v", o, o.LastOperation)
	}
	if got, err := c.GetShoot(patient(t), "a"); err != nil || got.LastOperation.State != "Succeeded" {
		t.Errorf("got %+v, %v", got, err)
	}

	if d, err := c.DeleteShoot(patient(t), shoot.Ref{Name: "a", Cluster: o.Cluster, Installation: o.Installation}); err != nil || d.Absent {
		t.Fatalf("delete: %+v, %v", d, err)
	}
	gone := follow(t, c, o.ResourceVersion, func(e shoot.Event) bool { return e.Type == shoot.Gone })
	if !gone.Shoot.Deleting || gone.Shoot.LastOperation.Type != "Delete" {
		t.Errorf("at last it was %+v, %+v", gone.Shoot, gone.Shoot.LastOperation)
	}
}

// TestAProviderConfigurationIsReplaced: provider configurations have no schema; a
// removed key has to disappear.
func TestAProviderConfigurationIsReplaced(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	o := newOthers(t, bed.Config(), ns)
	m := gardentest.NewManifest("a", 1)
	for i, config := range []string{
		`{"apiVersion":"x/v1","kind":"InfrastructureConfig","networks":{"vpc":{"cidr":"10.0.0.0/16"},"zones":[{"name":"a"},{"name":"b"}]}}`,
		`{"apiVersion":"x/v1","kind":"InfrastructureConfig","networks":{"zones":[{"more":1,"name":"b"}]}}`,
		``,
	} {
		m.Spec.Provider.InfrastructureConfig = []byte(config)
		if _, err := c.ApplyShoot(patient(t), m, i > 0); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(config, string(o.spec(t, "a").Provider.InfrastructureConfig)); diff != "" {
			t.Errorf("%s (-want +got)", diff)
		}
	}
}

func TestAnImageIsNoLongerWanted(t *testing.T) {
	bed := open(t)
	m := gardentest.NewManifest("a", 1)
	m.Spec.Provider.Workers[0].Machine.Image = &shoot.Image{Name: "local", Version: "1.0.0"}
	for i, image := range []*shoot.Image{{Name: "local", Version: "1.0.0"}, nil, {Name: "local", Version: "1.1.0"}, nil} {
		m.Spec.Provider.Workers[0].Machine.Image = image
		if _, err := bed.Garden.ApplyShoot(patient(t), m, i > 0); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // as Gardener does in its maintenance window
			bed.Edit(t, "a", func(s *shoot.Spec) { s.Provider.Workers[0].Machine.Image.Version = "1.1.0" })
		}
	}
	if got := bed.Spec(t, "a").Provider.Workers[0].Machine.Image; got == nil || *got != (shoot.Image{Name: "local", Version: "1.1.0"}) {
		t.Errorf("the image is %+v", got)
	}
}

// TestAPoolGoesThatSomebodyElseAppliesAPartOf: the remaining fields would be an
// incomplete pool, which Gardener rejects.
func TestAPoolGoesThatSomebodyElseAppliesAPartOf(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	o := newOthers(t, bed.Config(), ns)
	m := gardentest.NewManifest("a", 1)
	m.Spec.Provider.Workers = append(m.Spec.Provider.Workers, gardentest.NewWorker("more"))
	if _, err := c.ApplyShoot(patient(t), m, false); err != nil {
		t.Fatal(err)
	}
	part := []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":{"provider":{"workers":[{"name":"more","labels":{"their":"own"}}]}}}`)
	if _, err := o.shoots.Patch(t.Context(), "a", types.ApplyPatchType, part, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	m = gardentest.NewManifest("a", 2)
	if err := c.DryRunShoot(patient(t), m); err != nil {
		t.Errorf("preflight: %v", err)
	}
	got, err := c.ApplyShoot(patient(t), m, true)
	if err != nil || !got.Changed {
		t.Fatalf("got %+v, %v", got, err)
	}
	if w := o.spec(t, "a").Provider.Workers; len(w) != 1 || w[0].Name != "default" {
		t.Errorf("the pools are %+v", w)
	}
}

func TestADeletionWaitsForSomebodyElse(t *testing.T) {
	bed := kubebedtest.Garden(t)
	project, ns := kubebedtest.NewGardenProject(t)
	d, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	dual := []byte(`{"spec":{"dualApprovalForDeletion":[{"resource":"shoots","selector":{},"includeServiceAccounts":true}]}}`)
	projects := schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "projects"}
	if _, err := d.Resource(projects).Patch(t.Context(), project, types.MergePatchType, dual, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	o := newOthers(t, bed.Config(), ns)
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	// The admission plugin receives the change of the project a moment later.
	for try := 0; ; try++ {
		name := fmt.Sprintf("a%d", try)
		m := gardentest.NewManifest(name, 1)
		if _, err := c.ApplyShoot(patient(t), m, false); err != nil {
			t.Fatal(err)
		}
		_, err := c.DeleteShoot(patient(t), shoot.Ref{Name: name, Cluster: m.Metadata.Labels[shoot.LabelCluster], Installation: gardentest.Installation})
		if err == nil && try < 100 {
			continue
		}
		if shoot.ClassOf(err) != shoot.ClassApproval {
			t.Errorf("got %v (%s)", err, shoot.ClassOf(err))
		}
		if o.get(t, name).GetDeletionTimestamp() != nil {
			t.Error("it is being deleted all the same")
		}
		return
	}
}

func TestRights(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	path, err := bed.WriteUserKubeconfig("worker-" + ns)
	if err != nil {
		t.Fatal(err)
	}
	c, err := gardener.New(gardener.Config{Kubeconfig: path, Namespace: ns}, gardentest.Installation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	_, err = c.ApplyShoot(patient(t), gardentest.NewManifest("a", 1), false)
	wantForbidden(t, "apply", err)
	_, err = c.DeleteShoot(patient(t), shoot.Ref{Name: "a"})
	wantForbidden(t, "delete", err)
	_, err = c.ListShoots(patient(t))
	wantForbidden(t, "list", err)
	wantForbidden(t, "watch", c.WatchShoots(patient(t), "1", func(shoot.Event) error { return nil }))
	wantLevels(t, c.CheckAccess(patient(t), "local"), map[string]gardener.Level{
		"API core.gardener.cloud/v1beta1": gardener.Fine, "namespace " + ns: gardener.Worse, "credentials binding local": gardener.Worse,
		"permission to get shoots": gardener.Broken, "permission to create shoots": gardener.Broken, "permission to patch shoots": gardener.Broken,
		"permission to delete shoots": gardener.Broken, "permission to list shoots": gardener.Worse, "permission to watch shoots": gardener.Worse,
	})

	// The permissions of the package suffice.
	k, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"core.gardener.cloud"}, Resources: []string{"shoots"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	}}}
	if _, err := k.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "worker-" + ns}},
	}
	if _, err := k.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRights(t, c)
	if _, err := c.ApplyShoot(patient(t), gardentest.NewManifest("a", 1), false); err != nil {
		t.Errorf("apply: %v", err)
	}
	if _, err := c.ApplyShoot(patient(t), gardentest.NewManifest("a", 2), true); err != nil {
		t.Errorf("apply again: %v", err)
	}
	if err := c.DryRunShoot(patient(t), gardentest.NewManifest("b", 1)); err != nil {
		t.Errorf("preflight: %v", err)
	}
	m := gardentest.NewManifest("a", 1).Metadata.Labels
	if _, err := c.DeleteShoot(patient(t), shoot.Ref{Name: "a", Cluster: m[shoot.LabelCluster], Installation: gardentest.Installation}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.GetShoot(patient(t), "a"); !errors.Is(err, shoot.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func wantForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if shoot.ClassOf(err) != shoot.ClassForbidden {
		t.Errorf("%s: got %v (%s)", what, err, shoot.ClassOf(err))
	}
}

func wantLevels(t *testing.T, findings []gardener.CheckResult, want map[string]gardener.Level) {
	t.Helper()
	got := map[string]gardener.Level{}
	for _, f := range findings {
		got[f.Subject] = f.Level
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%v", diff, findings)
	}
}

// awaitRights waits until the API servers apply new permissions.
func awaitRights(t *testing.T, c *gardener.Client) {
	t.Helper()
	ctx := patient(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := c.ListShoots(ctx)
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	fine := map[string]gardener.Level{"API core.gardener.cloud/v1beta1": gardener.Fine, "namespace " + ns: gardener.Fine}
	for _, verb := range []string{"get", "create", "patch", "delete", "list", "watch"} {
		fine["permission to "+verb+" shoots"] = gardener.Fine
	}
	with := func(subject string, l gardener.Level) map[string]gardener.Level {
		m := map[string]gardener.Level{subject: l}
		maps.Copy(m, fine)
		return m
	}
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	wantLevels(t, c.CheckAccess(patient(t), "local"), with("credentials binding local", gardener.Fine))
	wantLevels(t, c.CheckAccess(patient(t), "none"), with("credentials binding none", gardener.Broken))
	wantLevels(t, c.CheckAccess(patient(t), ""), with("credentials binding", gardener.Worse))

	nowhere := newClient(t, bed.Config(), gardener.Config{Namespace: "garden-nowhere"})
	findings := nowhere.CheckAccess(patient(t), "local")
	at := slices.IndexFunc(findings, func(f gardener.CheckResult) bool { return f.Subject == "namespace garden-nowhere" })
	if at < 0 || findings[at].Level != gardener.Broken {
		t.Errorf("a namespace that is not there: %v", findings)
	}
	if err := nowhere.Probe(patient(t)); shoot.ClassOf(err) != shoot.ClassUnavailable {
		t.Errorf("a probe there: %v", err)
	}
}

func TestGardenerIsAwayForAWhile(t *testing.T) {
	bed := kubebedtest.Garden(t)
	_, ns := kubebedtest.NewGardenProject(t)
	c := newClient(t, bed.Config(), gardener.Config{Namespace: ns})
	l, err := c.ListShoots(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	watching := make(chan error, 1)
	begun := make(chan struct{})
	told := sync.OnceFunc(func() { close(begun) })
	go func() {
		watching <- c.WatchShoots(patient(t), l.ResourceVersion, func(shoot.Event) error { told(); return nil })
	}()
	if _, err := c.ApplyShoot(patient(t), gardentest.NewManifest("a", 1), false); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ApplyShoot(patient(t), gardentest.NewManifest("a", 2), true); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	}()
	_, err = c.ApplyShoot(patient(t), gardentest.NewManifest("a", 2), true)
	if shoot.ClassOf(err) != shoot.ClassUnavailable || err == nil {
		t.Errorf("apply: got %v", err)
	}
	if err := c.Probe(patient(t)); shoot.ClassOf(err) != shoot.ClassUnavailable {
		t.Errorf("probe: got %v", err)
	}
	if _, err := c.GetShoot(patient(t), "a"); errors.Is(err, shoot.ErrNotFound) || shoot.ClassOf(err) != shoot.ClassUnavailable {
		t.Errorf("get: got %v", err)
	}
	if err := <-watching; shoot.ClassOf(err) != shoot.ClassUnavailable {
		t.Errorf("the watch ended with %v", err)
	}
	if got := c.CheckAccess(patient(t), "local"); len(got) != 1 || got[0].Level != gardener.Broken {
		t.Errorf("check: %v", got)
	}
}
