package hosts_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	faultv1 "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// TestNodes covers a hold and a release with the rights of the person.
func TestNodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := "node-" + f.namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fault := &faultv1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, o := range []client.Object{node, fault} {
		if err := f.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	admin := f.signIn("admin")
	pool := "pool-" + f.namespace
	for i, st := range []faultv1.NodeFaultStatus{
		{Phase: faultv1.PhaseDraining, Owned: &faultv1.Owned{Cordon: true, AppliedAt: metav1.NowMicro()}},
		{Phase: faultv1.PhaseHeld, Owned: &faultv1.Owned{Cordon: true, AppliedAt: metav1.NowMicro()}},
		{Phase: faultv1.PhasePending, PhaseChangedAt: &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		{Phase: faultv1.PhaseObserved},
		{Phase: faultv1.PhaseQuarantined, Owned: &faultv1.Owned{AppliedAt: metav1.NowMicro()}},
	} {
		st.Budget = &faultv1.PoolBudget{Pool: pool, Limit: 2}
		other := &faultv1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}, Status: st}
		if err := f.admin.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		other.Status = st
		if err := f.admin.Status().Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	kubebedtest.Eventually(t, func(context.Context) error {
		text := admin.want(http.StatusOK, "GET", "console/hosts/demo/nodes", "", nil) //nolint:contextcheck // the requests have the context of the test
		if want := `{"pool":"` + pool + `","used":3,"limit":2,"blocked_since":"2026-01-02T03:04:05Z"}`; !strings.Contains(text, want) {
			return fmt.Errorf("the budgets lack %s: %s", want, text)
		}
		if !strings.Contains(text, `"name":"`+name+`","stage":"detected"`) {
			return fmt.Errorf("the nodes are %s", text)
		}
		return nil
	})
	path := "console/hosts/demo/nodes/" + name
	held := func() string {
		if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Fatal(err)
		}
		return node.Annotations[faultv1.AnnotationHold]
	}
	f.signIn("bob").want(http.StatusForbidden, "POST", path+"/hold", `{"reason":"mine"}`, nil)
	admin.want(http.StatusBadRequest, "POST", path+"/hold", `{}`, nil)
	admin.want(http.StatusNoContent, "POST", path+"/hold", `{"reason":"the fan is replaced"}`, nil)
	if got := held(); got != "the fan is replaced" {
		t.Errorf("held: %q", got)
	}
	admin.want(http.StatusNoContent, "POST", path+"/release", `{"reason":"done"}`, nil)
	if got := held(); got != "" {
		t.Errorf("held after the release: %q", got)
	}
}
