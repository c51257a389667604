package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// TestLifeOfAnObject creates, changes, breaks, mends and deletes an object, with no
// more rights than the role gives.
func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.start(t, "one", "us")
	eventually(t, func() error {
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "the SentinelConfig does not exist; create it, or check --config and --namespace") {
			return fmt.Errorf("ready does not say that there is no object: %w", err)
		}
		return nil
	})
	h.apply(t, spec("other"))
	h.apply(t, spec("one"))
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	eventually(t, r.Ready)
	first := h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
	h.wantEvent(t, "one", "ConfigLoaded", "generation 1 is active")
	eventually(t, func() error {
		s := h.get(t, "one").Status
		if s.ObservedGeneration != 1 || s.ResourcesWatched != 3 || s.EventsPublished != 3 || s.LastPollTime == nil || len(s.Conditions) != 4 {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
	if n := len(h.brokers.Opened()); n != 1 {
		t.Errorf("%d brokers opened, want 1: the other object is not ours", n)
	}
	for _, column := range []string{"READY", "True", "clusters"} {
		if out := h.kubectl(t, "get", "sentinelconfigs", "one"); !strings.Contains(strings.ToUpper(out), strings.ToUpper(column)) {
			t.Errorf("kubectl shows no %s:\n%s", column, out)
		}
	}

	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.ShardSelector = &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": "eu"}}
		s.Broker.URL = brokerB
	}))
	second := h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	h.fleet.Add("d region=eu")
	h.wantAnnounced(t, brokerB, "d")
	for i, c := range second.Status.Conditions {
		if before := first.Status.Conditions[i]; c.Type == v1alpha1.ConditionReady && !c.LastTransitionTime.Equal(&before.LastTransitionTime) {
			t.Errorf("%s changed at %s and at %s, though it has been true all the time", c.Type, before.LastTransitionTime, c.LastTransitionTime)
		}
	}
	h.wantEvent(t, "one", "ConfigChanged", "generation 2 is active")
	for _, part := range []string{
		`"msg":"configuration applied","generation":1`,
		`"msg":"configuration changed","generation":2,"previous_generation":1,"changes":["spec.broker.url","spec.shardSelector.matchLabels.region: (not set) → \"eu\""]`,
	} {
		if !strings.Contains(r.log.String(), part) {
			t.Errorf("the log has no line with %s", part)
		}
	}

	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	broken := h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "spec.decision")
	if broken.Status.ObservedGeneration != 2 {
		t.Errorf("observed generation is %d, want that in force", broken.Status.ObservedGeneration)
	}
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	h.wantEvent(t, "one", "ConfigInvalid", "spec.decision")
	h.fleet.Add("e region=eu")
	h.wantAnnounced(t, brokerB, "e")

	h.wantOnce(t)

	h.apply(t, spec("one"))
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionTrue, "generation 4")
	h.kubectl(t, "delete", "sentinelconfigs", "one")
	eventually(t, func() error {
		if h.brokers.Running(brokerA) != 0 {
			return errors.New("its broker is still connected")
		}
		return nil
	})
	lists := h.fleet.Lists()
	h.fleet.BumpGenerations()
	if r.Ready() == nil {
		t.Error("it is ready without an object")
	}
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) { s.PollInterval = "1h" }))
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
	if n := h.fleet.Lists() - lists; n > 1 {
		t.Errorf("%d lists since it was deleted, want that of the new one", n)
	}
	if out := h.kubectl(t, "get", "sentinelconfigs,events", "-o", "yaml", "--show-managed-fields=false"); strings.Count(out, "canary") != strings.Count(h.kubectl(t, "get", "sentinelconfigs", "-o", "jsonpath={.items[*].spec}"), "canary") {
		t.Error("a password stands outside of the spec")
	}
}

// TestSecrets reads what an object names in Secrets, and follows it.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := newHost(t, "creds")
	r := h.start(t, "one", "us")
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Broker.URL = ""
		s.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "creds"}
	}))
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "spec.broker.credentialsSecretRef")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionFalse, "SecretMissing")
	h.wantEvent(t, "one", "ConfigLoadFailed", "creds")
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "creds") {
		t.Errorf("ready says %v, want that the Secret is missing", err)
	}
	h.kubectl(t, "create", "secret", "generic", "creds", "--from-literal=url="+brokerA)
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")

	h.kubectl(t, "patch", "secret", "creds", "-p", `{"stringData":{"url":"`+brokerB+`"}}`)
	h.wantEvent(t, "one", "ConfigChanged", "generation 1")
	h.fleet.Add("d")
	h.wantAnnounced(t, brokerB, "d")
	if n := h.brokers.Running(brokerA); n != 0 {
		t.Errorf("%d clients with the old credentials, want none", n)
	}

	h.kubectl(t, "delete", "secret", "creds")
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "creds")
	h.fleet.Add("e")
	h.wantAnnounced(t, brokerB, "e")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	h.wantOnce(t)
}
