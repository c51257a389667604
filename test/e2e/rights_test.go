package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// TestOperatorRights runs a sentinel that uses every feature with exactly the
// roles for it: nothing is forbidden. Without any one of their rules something
// is, and the log says what.
func TestOperatorRights(t *testing.T) {
	t.Parallel()
	whole := operator.SentinelRoles{Secrets: []string{"broker"}, Sharding: true}
	run := func(t *testing.T, without func(role, resource string) bool) (*fleetOnKube, *process) {
		t.Helper()
		f := newFleetOnKube(t, newHostCluster(t))
		f.kubectl(t, "create", "secret", "generic", "broker", "--from-literal=url="+rabbit(t).URL())
		f.apply(t, strings.Replace(f.config(t, "featured", "  sharding: {mode: auto}\n"),
			fmt.Sprintf("url: %q}", rabbit(t).URL()), "credentialsSecretRef: {name: broker}}", 1))
		needs := whole
		needs.Namespace = f.namespace
		objects := needs.BuildAccountRolesAndBindings()
		for _, o := range objects {
			if role, ok := o.(*rbacv1.Role); ok {
				role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return without(role.Name, r.Resources[0]) })
			}
		}
		return f, f.operator(t, f.accountOf(t, objects), "--config=featured")
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		f, s := run(t, func(string, string) bool { return false })
		f.queue.wantEvents(t, f.create(t, "first", "").ID, 1, patience)
		f.wantColumns(t, "featured", map[string]string{"READY": "True"})
		f.wantKubernetesEvent(t, "featured", "Normal", "")
		if err := s.log.mentions("forbidden"); err == nil {
			t.Error("something is forbidden")
		}
	})
	for _, role := range whole.BuildRoles() {
		for _, rule := range role.Rules {
			resource := rule.Resources[0]
			t.Run("without "+resource, func(t *testing.T) {
				t.Parallel()
				_, s := run(t, func(name, of string) bool { return name == role.Name && of == resource })
				eventually(t, patience, func() error {
					for line := range strings.Lines(s.log.String()) {
						if strings.Contains(line, "forbidden") && strings.Contains(line, resource) {
							return nil
						}
					}
					return fmt.Errorf("the log does not say that %s is forbidden", resource)
				})
			})
		}
	}
}

// TestOperatorOfTheSpecification runs a sentinel with the arguments and the
// role of the specification, which lets it write no status and no events: it
// publishes all the same.
func TestOperatorOfTheSpecification(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newHostCluster(t))
	needs := operator.SentinelRoles{Namespace: f.namespace}
	objects := needs.BuildAccountRolesAndBindings()
	for _, o := range objects {
		if role, ok := o.(*rbacv1.Role); ok {
			role.Rules = []rbacv1.PolicyRule{
				{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs/status"}, Verbs: []string{"get"}},
			}
		}
	}
	s := f.operator(t, f.accountOf(t, objects), "--config=cluster-sentinel-default")
	f.apply(t, f.config(t, "cluster-sentinel-default", ""))
	first := f.create(t, "first", "")
	f.queue.wantEvents(t, first.ID, 1, patience)
	s.wantReady(t)
	f.apply(t, f.config(t, "cluster-sentinel-default", "  messageData: {zone: .labels.region}\n"))
	wantMetric(t, s, "hyperfleet_sentinel_config_reloads_total", 1)
	second := f.create(t, "second", "region=north")
	if e := f.queue.wantEvents(t, second.ID, 1, patience)[0]; e.str("zone") != "north" {
		t.Errorf("data %v, want what messageData asks for", e.data)
	}
	s.wantLine(t, "sentinelconfig event", map[string]any{"config": "cluster-sentinel-default", "reason": "ConfigLoaded"})
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "rejected event") || strings.Contains(line, `"level":"error"`) {
			t.Errorf("with the role of the specification the log has %s", line)
		}
	}
	if n := len(s.log.find("status update failed, retrying")); n > 2 {
		t.Errorf("%d lines about a status that must not be written, want one or two", n)
	}
}
