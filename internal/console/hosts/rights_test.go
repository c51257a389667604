package hosts_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// TestEmergencyStop covers that the stop is the person's own.
func TestEmergencyStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.bind("bob", roles.ApproverRole, f.namespace)
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
	if !stop.Stopped || stop.Reason != "an incident" || stop.Can.Allowed {
		t.Errorf("the stop for bob: %+v", stop)
	}
	var m corev1.ConfigMap
	key := client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.EmergencyStop}
	if err := f.admin.Get(t.Context(), key, &m); err != nil || m.Data[v1alpha1.StopReason] != "an incident" {
		t.Errorf("%v, %v", m.Data, err)
	}
	admin.want(http.StatusNoContent, "DELETE", "console/hosts/demo/stop", "", nil)
	if err := f.admin.Get(t.Context(), key, &m); !apierrors.IsNotFound(err) {
		t.Errorf("after the end: %v", err)
	}
}

// TestOwnAccountOnlyReads covers that the console's own account can neither change anything nor act as
// someone else.
func TestOwnAccountOnlyReads(t *testing.T) {
	t.Parallel()
	for _, rule := range hosts.Role().Rules {
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
