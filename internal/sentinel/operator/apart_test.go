package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// TestAllApart runs good and bad objects in one process.
func TestAllApart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const panicking, away = "http://panics", "nats://away"
	h.fleet.SetPanic(panicking, true)
	h.brokers.SetAway(away, true)
	h.apply(t, spec("good"))
	r := h.start(t, "", "us")
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.apply(t, spec("panics", func(s *v1alpha1.SentinelConfigSpec) { s.HyperfleetAPI.URL = panicking }))
	h.apply(t, spec("away", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = away }))
	h.apply(t, spec("invalid", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	h.apply(t, spec("late", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = brokerB }))
	h.wantAnnounced(t, brokerB, "a", "b", "c")
	h.wantCondition(t, "panics", v1alpha1.ConditionReady, metav1.ConditionFalse, "panic")
	h.wantEvent(t, "panics", "SentinelFailed", "panic")
	h.wantCondition(t, "away", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, "it is away")
	h.wantCondition(t, "away", v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, "")
	h.wantEvent(t, "away", "BrokerUnreachable", "it is away")
	h.wantCondition(t, "invalid", v1alpha1.ConditionReady, metav1.ConditionFalse, "spec.decision")
	for _, name := range []string{"good", "late"} {
		h.wantCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	}
	if err := errors.Join(r.Ready(), r.Live()); err != nil {
		t.Errorf("the others make the process unfit: %v", err)
	}
	h.fleet.BumpGenerations()
	eventually(t, func() error {
		counts := map[string]int{}
		for _, e := range h.brokers.Events() {
			counts[e.URL]++
		}
		if counts[brokerA] != 6 || counts[brokerB] != 6 {
			return fmt.Errorf("events by broker are %v, want 6 at each", counts)
		}
		return nil
	})
	var watches []string
	for name := range r.Decisions() {
		watches = append(watches, name)
	}
	if text := strings.Join(watches, ","); !strings.Contains(text, "good: clusters") || !strings.Contains(text, "late: clusters") {
		t.Errorf("decisions are of %q", text)
	}
	h.fleet.SetPanic(panicking, false)
	h.wantCondition(t, "panics", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	h.kubectl(t, "delete", "sentinelconfigs", "late")
	eventually(t, func() error {
		if h.brokers.Running(brokerB) != 0 {
			return errors.New("what was deleted still runs")
		}
		return nil
	})
	eventually(t, func() error { // the metrics go after the sentinel has stopped
		families, err := r.metrics.Gather()
		if err != nil {
			return err
		}
		configs := map[string]bool{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "config" {
						configs[l.GetValue()] = true
					}
				}
			}
		}
		if !configs["good"] || configs["late"] {
			return fmt.Errorf("metrics are of %v, want those that run and no other", configs)
		}
		return nil
	})
}
