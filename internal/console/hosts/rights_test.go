package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	sentinelv1 "github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// TestEmergencyStop covers that the stop is the person's own.
func TestEmergencyStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.bind("bob", v1alpha1.ApproverRole, f.namespace)
	bob := f.signIn("bob")
	bob.want(http.StatusForbidden, "POST", "console/hosts/demo/stop", `{"reason":"no"}`, nil)
	admin := f.signIn("admin")
	var stop hosts.Stop
	admin.want(http.StatusOK, "GET", "console/hosts/demo/stop", "", &stop)
	if stop.Stopped || !stop.Can.Allowed {
		t.Errorf("before the stop: %+v", stop)
	}
	admin.want(http.StatusNoContent, "POST", "console/hosts/demo/stop", `{"reason":"an incident"}`, nil)
	bob.want(http.StatusOK, "GET", "console/hosts/demo/stop", "", &stop)
	if !stop.Stopped || stop.Reason != "an incident" || stop.By != "admin" || stop.Can.Allowed {
		t.Errorf("the stop for bob: %+v", stop)
	}
	var m corev1.ConfigMap
	key := client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.EmergencyStop}
	if err := f.admin.Get(t.Context(), key, &m); err != nil || m.Data[v1alpha1.StopReason] != "an incident" {
		t.Errorf("%v, %v", m.Data, err)
	}
	admin.want(http.StatusBadRequest, "DELETE", "console/hosts/demo/stop", `{}`, nil)
	admin.want(http.StatusNoContent, "DELETE", "console/hosts/demo/stop", `{"reason":"it is over"}`, nil)
	if err := f.admin.Get(t.Context(), key, &m); !apierrors.IsNotFound(err) {
		t.Errorf("after the end: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.acts[len(f.acts)-1]; last.Action != "emergency-stop-ended" || last.Reason != "it is over" {
		t.Errorf("the end of the stop is recorded as %+v", last)
	}
}

// TestOwnAccountOnlyReads covers that the console's own account can neither change anything nor act as
// someone else.
func TestOwnAccountOnlyReads(t *testing.T) {
	t.Parallel()
	for _, rule := range hosts.NewConsoleClusterRole().Rules {
		for _, verb := range rule.Verbs {
			review := slices.Equal(rule.Resources, []string{"subjectaccessreviews"}) && verb == "create"
			if !review && !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("the role has %s on %v", verb, rule.Resources)
			}
		}
	}
	f := newFixture(t)
	ke := f.create(f.namespace, "scale-web")
	own, err := client.New(f.own, client.Options{Scheme: f.admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Get(t.Context(), client.ObjectKeyFromObject(ke), ke); err != nil {
		t.Errorf("read: %v", err)
	}
	ke.Spec.Cancel = true
	if err := own.Update(t.Context(), ke); !apierrors.IsForbidden(err) {
		t.Errorf("update: %v", err)
	}
	cfg := rest.CopyConfig(f.own)
	cfg.Impersonate.UserName = "admin"
	as, err := client.New(cfg, client.Options{Scheme: f.admin.Scheme()})
	if err == nil {
		err = as.Get(t.Context(), client.ObjectKeyFromObject(ke), ke)
	}
	if !apierrors.IsForbidden(err) {
		t.Errorf("impersonate: %v", err)
	}
}

// TestAudit covers that a person reads the audit of the executions that the person may get.
func TestAudit(t *testing.T) {
	t.Parallel()
	var asked []string
	unavailable := false
	f := newFixture(t, func(_ *hosts.Config, d *hosts.Deps) {
		d.ReadAudit = func(_ context.Context, uid string) ([]hosts.AuditEvent, error) {
			asked = append(asked, uid)
			if unavailable {
				return nil, errors.New("password authentication failed for user \"auditor\"")
			}
			return []hosts.AuditEvent{{Position: 7, Type: "approved", Actor: "bob"}}, nil
		}
	})
	ke := f.create(f.namespace, "scale-web")
	path := "console/hosts/demo/executions/" + f.namespace + "/scale-web/audit"
	f.signIn("bob").want(http.StatusNotFound, "GET", path, "", nil)
	if len(asked) > 0 {
		t.Errorf("the audit of %v was read for a person without rights", asked)
	}
	admin := f.signIn("admin")
	var answer struct{ Items []hosts.AuditEvent }
	admin.eventuallySees([]string{"scale-web"}, f.namespace)
	admin.want(http.StatusOK, "GET", path, "", &answer)
	if len(answer.Items) != 1 || answer.Items[0].Actor != "bob" || asked[0] != string(ke.UID) {
		t.Errorf("the audit of %v is %+v", asked, answer)
	}
	unavailable = true
	if text := admin.want(http.StatusServiceUnavailable, "GET", path, "", nil); strings.Contains(text, "password") {
		t.Errorf("the answer is %s", text)
	}
}

// TestDecisions covers that a person sees the decisions of the sentinels that the person may list.
func TestDecisions(t *testing.T) {
	t.Parallel()
	var decided atomic.Int32
	f := newFixture(t, func(_ *hosts.Config, d *hosts.Deps) {
		d.Decide = func(_ context.Context, who console.Person, list []*sentinelv1.SentinelConfig, id string) (out []hosts.Decision, err error) {
			decided.Add(1)
			for _, s := range list {
				out = append(out, hosts.Decision{State: "due", Message: s.Name + " as " + who.Token + " about " + id})
			}
			return out, nil
		}
	})
	for _, name := range []string{"another", "fine", "other"} {
		s := &sentinelv1.SentinelConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace}, Spec: sentinelv1.SentinelConfigSpec{
			ResourceType: "clusters", HyperfleetAPI: sentinelv1.HyperfleetAPI{URL: "http://fleet-api:8000"},
			Broker: sentinelv1.Broker{Type: sentinelv1.BrokerNATS, Topic: "t", URL: "nats://broker:4222"},
		}}
		if name == "other" {
			s.Spec.ResourceType = "nodepools"
		}
		if err := f.admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	const path = "console/hosts/demo/decisions?collection=clusters&id="
	admin := f.signIn("admin")
	var got []hosts.Decision
	kubebedtest.Eventually(t, func(context.Context) error {
		var answer struct{ Items []hosts.Decision }
		admin.want(http.StatusOK, "GET", path+"c-1", "", &answer) //nolint:contextcheck // the requests have the context of the test
		got = slices.DeleteFunc(answer.Items, func(d hosts.Decision) bool { return d.Namespace != f.namespace })
		if len(got) != 2 {
			return fmt.Errorf("the decisions are %+v", answer.Items)
		}
		return nil
	})
	want := []hosts.Decision{
		{Host: "demo", Namespace: f.namespace, Name: "another", State: "due", Message: "another as admin-token about c-1"},
		{Host: "demo", Namespace: f.namespace, Name: "fine", State: "due", Message: "fine as admin-token about c-1"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the decisions are %+v, want %+v", got, want)
	}
	admin.want(http.StatusBadRequest, "GET", path, "", nil)
	before := decided.Load()
	if text := f.signIn("bob").want(http.StatusOK, "GET", path+"c-1", "", nil); strings.Contains(text, "fine") || decided.Load() != before {
		t.Errorf("bob sees %s", text)
	}
}

// TestCoverage covers that a person who may list all SentinelConfigs can compare them with the resources,
// one check at a time, and that other persons get no answer.
func TestCoverage(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan []string), make(chan error)
	f := newFixture(t, func(_ *hosts.Config, d *hosts.Deps) {})
	f.check = func(ctx context.Context, who console.Person, list []hosts.NamedSentinel) (c hosts.Coverage, err error) {
		names := []string{who.Token}
		for _, s := range list {
			if s.Config.Namespace == f.namespace {
				names = append(names, strings.TrimPrefix(s.Name, f.namespace+"/"))
			}
		}
		select {
		case asked <- names:
		case <-ctx.Done():
			return c, ctx.Err()
		}
		c.Gaps = []hosts.CoverageGroup{{Collection: "clusters", Labels: "region=ap", Resources: 1, ExampleID: "1", ExampleName: "ap-1"}}
		return c, <-goOn
	}
	s := &sentinelv1.SentinelConfig{ObjectMeta: metav1.ObjectMeta{Name: "fine", Namespace: f.namespace}, Spec: sentinelv1.SentinelConfigSpec{
		ResourceType: "clusters", HyperfleetAPI: sentinelv1.HyperfleetAPI{URL: "http://fleet-api:8000"},
		Broker: sentinelv1.Broker{Type: sentinelv1.BrokerNATS, Topic: "t", URL: "nats://broker:4222"},
	}}
	if err := f.admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	const path = "console/coverage"
	admin, bob := f.signIn("admin"), f.signIn("bob")
	kubebedtest.Eventually(t, func(context.Context) error { // until the cache has it
		var answer struct{ Items []hosts.Sentinel }
		admin.want(http.StatusOK, "GET", "console/hosts/demo/sentinels", "", &answer) //nolint:contextcheck // the requests have the context of the test
		if !slices.ContainsFunc(answer.Items, func(s hosts.Sentinel) bool { return s.Namespace == f.namespace }) {
			return errors.New("the cache has no such sentinel yet")
		}
		return nil
	})
	if text := bob.want(http.StatusForbidden, "GET", path, "", nil); strings.Contains(text, "ap-1") {
		t.Errorf("bob is told %s", text)
	}
	for _, fails := range []error{nil, errors.New("read clusters of http://fleet-api:8000: no answer")} {
		done := make(chan string)
		go func() {
			status := http.StatusOK
			if fails != nil {
				status = http.StatusServiceUnavailable
			}
			done <- admin.want(status, "GET", path, "", nil)
		}()
		if names := <-asked; !slices.Equal(names, []string{"admin-token", "fine"}) {
			t.Errorf("compared %q", names)
		}
		admin.want(http.StatusTooManyRequests, "GET", path, "", nil)
		goOn <- fails
		if text := <-done; strings.Contains(text, "ap-1") != (fails == nil) || fails != nil && !strings.Contains(text, "no answer") {
			t.Errorf("the answer is %s", text)
		}
	}
}

// assumeUsers returns a change to a host cluster that assumes names, with the answer of the fleet API for each token.
func assumeUsers(name string, err error) func(*hosts.Config, *hosts.Deps) {
	return func(c *hosts.Config, d *hosts.Deps) {
		c.AssumeUsers, c.UserPrefix = true, "oidc:"
		d.Identify = func(context.Context, string) (session.User, error) { return session.User{Name: name}, err }
	}
}

// TestRevokedToken covers that a person with an assumed name is signed out once the fleet API does not accept the token.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, assumeUsers("", console.ErrToken))
	f.bind("oidc:stranger", v1alpha1.ViewerRole, f.namespace)
	const path = "console/hosts/demo/executions"
	b := f.signIn("stranger")
	for range 2 {
		b.want(http.StatusUnauthorized, "GET", path, "", nil)
	}
	if b.session().SignedIn {
		t.Error("the person is still signed in")
	}
	f.signIn("bob").want(http.StatusOK, "GET", path, "", nil) // the API server knows bob
}
