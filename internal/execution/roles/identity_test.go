package roles_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

func newIdentities() (*roles.Identities, *cluster) {
	c := &cluster{}
	return roles.NewIdentities(c.config(), "executor"), c
}

func scaling(t *testing.T) *action.Action {
	t.Helper()
	a, ok := action.Find("scale_deployment")
	if !ok {
		t.Fatal("no action")
	}
	return a
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

const (
	asking = "POST /api/v1/namespaces/executor/serviceaccounts/kubernaut-action-scale-deployment/token"
	object = "GET /apis/apps/v1/namespaces/shop/deployments/web"
)

// read reads a Deployment as the account.
func read(ctx context.Context, ids *roles.Identities, a *action.Action) error {
	c, err := ids.Client(ctx, a)
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(deployments).Namespace("shop").Get(ctx, "web", metav1.GetOptions{})
	return err
}

func wantSent(t *testing.T, c *cluster, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.take()); diff != "" {
		t.Error(diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestATokenIsMadeOnceAndRenewedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := read(t.Context(), ids, a); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		sent := c.take()
		if sent[0] != asking || len(sent) != 21 {
			t.Errorf("20 callers sent %v", sent)
		}
		time.Sleep(5*time.Minute - time.Second)
		must(t, read(t.Context(), ids, a))
		wantSent(t, c, object)
		time.Sleep(time.Second)
		must(t, read(t.Context(), ids, a))
		wantSent(t, c, asking, object)
	})
}

func TestATokenIsUsedAsLongAsThereIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		must(t, read(t.Context(), ids, a))
		c.set(func() { c.down = true })
		time.Sleep(6 * time.Minute)
		if _, err := ids.Client(t.Context(), a); err != nil {
			t.Errorf("a token that is good for minutes is not used: %v", err)
		}
		time.Sleep(4 * time.Minute)
		_, err := ids.Client(t.Context(), a)
		if err == nil || !strings.Contains(err.Error(), "executor/kubernaut-action-scale-deployment") {
			t.Errorf("with a token that is over: %v", err)
		}
	})
}

func TestATokenOfAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		c.life = 60 // as some API servers are told to give
		must(t, read(t.Context(), ids, a))
		time.Sleep(31 * time.Second)
		c.take()
		must(t, read(t.Context(), ids, a))
		wantSent(t, c, asking, object)
	})
}

func TestAnAccountThatWasMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		must(t, read(t.Context(), ids, a))
		c.take()
		c.set(func() { c.good = "token-2" })
		must(t, read(t.Context(), ids, a))
		wantSent(t, c, object, asking, object)

		c.set(func() { c.good = "token-4" })
		client, err := ids.Client(t.Context(), a)
		must(t, err)
		for range 2 { // a body is sent again as well
			got, err := client.Dynamic.Resource(deployments).Namespace("shop").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"x":1}`), metav1.PatchOptions{})
			if err == nil {
				if sent, _, _ := unstructured.NestedString(got.Object, "metadata", "sent"); sent != `{"x":1}` {
					t.Errorf("what was sent again is %q", sent)
				}
			}
			if err != nil && c.made == 4 {
				t.Error(err)
			}
		}
		if c.made != 4 {
			t.Errorf("%d tokens were made, want 4: one for each refusal", c.made)
		}
	})
}

// A token that is refused though it is new is not asked for over and over.
func TestATokenThatNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		c.good = "none"
		if err := read(t.Context(), ids, scaling(t)); err == nil {
			t.Error("it was taken")
		}
		wantSent(t, c, asking, object, asking, object)
	})
}

func TestAnAccountThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		c.missing = true
		var missing *roles.MissingError
		if _, err := ids.Client(t.Context(), a); !errors.As(err, &missing) || missing.Account != a.ServiceAccount() {
			t.Errorf("a client: %v", err)
		}
		for range 2 {
			if is, err := ids.AccountExists(t.Context(), a); is || err != nil {
				t.Errorf("exists: %t, %v", is, err)
			}
		}
		if n := len(c.take()); n != 3 {
			t.Errorf("%d requests, want 3: that it is missing is not believed", n)
		}
		c.set(func() { c.missing = false })
		for range 2 {
			if is, err := ids.AccountExists(t.Context(), a); !is || err != nil {
				t.Errorf("exists: %t, %v", is, err)
			}
		}
		if n := len(c.take()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}

		// That it has gone shows in the next request, wherever that is.
		must(t, read(t.Context(), ids, a))
		c.set(func() { c.missing, c.good = true, "none" })
		if err := read(t.Context(), ids, a); !errors.As(err, &missing) {
			t.Errorf("a read: %v", err)
		}
		if is, err := ids.AccountExists(t.Context(), a); is || err != nil {
			t.Errorf("exists: %t, %v", is, err)
		}
	})
}

// TestAnActionWithoutAnAccount verifies that an action without an account is usable without any
// request, because it runs nothing.
func TestAnActionWithoutAnAccount(t *testing.T) {
	ids, c := newIdentities()
	a, _ := action.Find("notify_only")
	client, err := ids.Client(t.Context(), a)
	must(t, err)
	wantSent(t, c)
	plan := &v1alpha1.Plan{Action: a.Name, Parameters: &runtime.RawExtension{Raw: []byte(`{"message": "look"}`)}}
	plan.Hash = action.HashPlanEffect(plan)
	r := action.Execute(t.Context(), client, plan, action.Run{Deadline: time.Now().Add(time.Minute)})
	if r.Code != action.CodeOK || r.Message != "look" {
		t.Errorf("it ended with %d: %s", r.Code, r.Message)
	}
}

// TestAWaitIsStopped verifies that a cancelled caller does not affect the others.
func TestAWaitIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		first, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = ids.Client(first, a) })
		synctest.Wait()
		var second error
		all.Go(func() { _, second = ids.Client(t.Context(), a) })
		synctest.Wait()
		stop()
		all.Wait()
		if second != nil {
			t.Error(second)
		}
		c.take()
		gone, stop := context.WithCancel(t.Context())
		stop()
		time.Sleep(time.Hour)
		if _, err := ids.Client(gone, a); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

func TestRights(t *testing.T) {
	rights := []action.Right{
		{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "shop", Name: "web"},
		{Group: "apps", Resource: "deployments", Subresource: "scale", Verb: "patch", Namespace: "shop", Name: "web"},
		{Resource: "secrets", Verb: "get", Executor: true},
	}
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		c.denies = func(r *authorizationv1.ResourceAttributes) bool { return r.Verb == "patch" }
		denied, err := ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		if diff := cmp.Diff(rights[1:2], denied); diff != "" {
			t.Error(diff)
		}
		for _, r := range c.reviews {
			want := []string{"system:serviceaccounts", "system:serviceaccounts:executor", "system:authenticated"}
			if diff := cmp.Diff(want, r.Groups); diff != "" || r.User != "system:serviceaccount:executor:"+a.ServiceAccount() {
				t.Errorf("asked for %s: %s", r.User, diff)
			}
			if r.ResourceAttributes.Resource == "secrets" && r.ResourceAttributes.Namespace != "executor" {
				t.Errorf("asked for Secrets in %q", r.ResourceAttributes.Namespace)
			}
		}
		if n := len(c.take()); n != 4 {
			t.Errorf("%d requests, want 4: the patch is asked for on all objects and on this one", n)
		}

		c.set(func() { c.denies = nil })
		denied, err = ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		if n := len(c.take()); n != 1 || len(denied) != 0 {
			t.Errorf("%d requests, want 1: a no is asked again, a yes is believed; denied %v", n, denied)
		}
		_, err = ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		wantSent(t, c)

		time.Sleep(time.Minute)
		c.set(func() { c.denies = func(*authorizationv1.ResourceAttributes) bool { return true } })
		denied, err = ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		if diff := cmp.Diff(rights, denied); diff != "" {
			t.Errorf("after a minute:\n%s", diff)
		}

		c.set(func() { c.denies = nil })
		_, err = ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		ids.ForgetAnswers(a)
		c.set(func() { c.denies = func(*authorizationv1.ResourceAttributes) bool { return true } })
		if denied, err = ids.ListDenied(t.Context(), a, rights); err != nil || len(denied) != 3 {
			t.Errorf("what was forgotten is believed: %v, %v", denied, err)
		}
	})
}

// TestMayRequest holds who is asked about, with which groups, and how long an answer
// is believed.
func TestMayRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		for user, groups := range map[string][]string{
			"jane":                        {"system:authenticated"},
			"system:serviceaccount:a:bot": {"system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"},
			"system:serviceaccount:odd":   {"system:authenticated"}, // is no account
		} {
			c.set(func() { c.reviews = nil })
			for range 2 { // a yes is believed
				if may, err := ids.MayRequest(t.Context(), user, nil, "scale_deployment"); !may || err != nil {
					t.Errorf("%s may not: %v", user, err)
				}
			}
			want := []authorizationv1.SubjectAccessReviewSpec{{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "kubernetesexecution.kubernaut.io", Version: "v1alpha1", Resource: "kubernetesexecutions", Verb: "execute", Namespace: "executor", Name: "scale_deployment",
			}}}
			if diff := cmp.Diff(want, c.reviews); diff != "" {
				t.Error(diff)
			}
		}
		c.set(func() { c.denies = func(*authorizationv1.ResourceAttributes) bool { return true } })
		inGroup := []string{"system:authenticated", "on-call"}
		if may, err := ids.MayRequest(t.Context(), "jane", inGroup, "scale_deployment"); may || err != nil {
			t.Errorf("as one of a group, of whom nobody has asked yet: %t, %v", may, err)
		}
		if diff := cmp.Diff([]string{"on-call", "system:authenticated"}, c.reviews[len(c.reviews)-1].Groups); diff != "" {
			t.Error(diff)
		}
		if may, err := ids.MayRequest(t.Context(), "jane", nil, "drain_node"); may || err != nil {
			t.Errorf("for another action: %t, %v", may, err)
		}
		time.Sleep(time.Minute)
		if may, err := ids.MayRequest(t.Context(), "jane", nil, "scale_deployment"); may || err != nil {
			t.Errorf("after a minute: %t, %v", may, err)
		}
		c.set(func() { c.down = true })
		if _, err := ids.MayRequest(t.Context(), "jane", nil, "scale_deployment"); err == nil {
			t.Error("no answer is one")
		}
	})
}

// An answer for all objects of a namespace does for each of them; where an
// account has rights on some alone, each of them is asked for.
func TestRightsOnAllObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		asked := func(name string, want ...string) {
			t.Helper()
			c.set(func() { c.reviews = nil })
			_, err := ids.ListDenied(t.Context(), a, []action.Right{{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "shop", Name: name}})
			must(t, err)
			var names []string
			for _, r := range c.reviews {
				names = append(names, r.ResourceAttributes.Name)
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("asked for %s: %s", name, diff)
			}
		}
		asked("web", "")
		asked("api")
		time.Sleep(time.Minute)
		c.set(func() { c.denies = func(r *authorizationv1.ResourceAttributes) bool { return r.Name == "" } })
		asked("web", "", "web")
		asked("web")
		asked("api", "api")
		time.Sleep(time.Minute)
		c.set(func() { c.denies = nil })
		ids.ForgetAnswers(a)
		asked("web", "web")
		time.Sleep(time.Minute)
		asked("web", "")
	})
}

func TestManyRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids, c := newIdentities()
		a := scaling(t)
		var rights []action.Right
		for i := range 5000 { // more than are kept
			rights = append(rights, action.Right{Resource: "pods", Verb: "get", Namespace: fmt.Sprint(i)})
		}
		denied, err := ids.ListDenied(t.Context(), a, rights)
		must(t, err)
		if len(denied) != 0 || len(c.reviews) != 5000 || c.atOnce != 8 {
			t.Errorf("%d denied, %d asked, %d at once", len(denied), len(c.reviews), c.atOnce)
		}
		c.set(func() { c.down = true })
		_, err = ids.ListDenied(t.Context(), a, []action.Right{{Group: "apps", Resource: "deployments", Verb: "get"}})
		if err == nil || !strings.Contains(err.Error(), a.ServiceAccount()) || !strings.Contains(err.Error(), "get apps/deployments") {
			t.Errorf("the error does not say who and what: %v", err)
		}
		if _, err = roles.NewIdentities(c.config(), "executor").AccountExists(t.Context(), a); err == nil || !strings.Contains(err.Error(), a.ServiceAccount()) {
			t.Errorf("the error does not say who: %v", err)
		}
	})
}

func TestAConfigurationThatCannotBeUsed(t *testing.T) {
	ids := roles.NewIdentities(&rest.Config{Host: "://"}, "executor")
	a := scaling(t)
	_, client := ids.Client(t.Context(), a)
	_, exists := ids.AccountExists(t.Context(), a)
	_, denied := ids.ListDenied(t.Context(), a, []action.Right{{Resource: "pods", Verb: "get"}})
	if client == nil || exists == nil || denied == nil {
		t.Errorf("%v; %v; %v", client, exists, denied)
	}
}
