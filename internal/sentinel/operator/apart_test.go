package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// TestNothingLostUnderLoad changes the configuration again and again while the
// fleet changes: each generation that was the last of its cluster is announced, and
// no event comes twice.
func TestNothingLostUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i := range 40 {
		h.fleet.Add(fmt.Sprint("c-", i))
	}
	h.start(t, "one", "us")
	data := func(s *v1alpha1.SentinelConfigSpec) {
		s.MessageData = &apiextensionsv1.JSON{Raw: []byte(`{"generation":"cel:resource.generation"}`)}
	}
	h.apply(t, spec("one", data))
	h.wantAnnounced(t, brokerA, "a", "c-39")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(3 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				h.fleet.BumpGenerations(fmt.Sprint("c-", i%40))
			}
		}
	}()
	for i := range 8 {
		url := []string{brokerB, brokerA}[i%2]
		h.apply(t, spec("one", data, func(s *v1alpha1.SentinelConfigSpec) {
			s.Broker.URL = url
			s.PollInterval = v1alpha1.Duration(fmt.Sprintf("%dms", 20+i))
		}))
		h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, fmt.Sprintf("generation %d", 2+i))
	}
	close(stop)
	<-stopped
	eventually(t, func() error {
		last := map[string]bool{}
		for _, e := range h.brokers.Events() {
			last[e.Subject+" "+string(e.Data)] = true
		}
		for id, g := range h.fleet.Generations() {
			if !last[fmt.Sprintf(`%s {"generation":%d}`, id, g)] {
				return fmt.Errorf("generation %d of %s was not announced", g, id)
			}
		}
		return nil
	})
	h.wantOnce(t)
}

// TestWithoutItsAPIServer stops the API server: running sentinels continue and are ready, and later
// changes take effect. It has its own server, because the other tests share one.
func TestWithoutItsAPIServer(t *testing.T) { //nolint:paralleltest // see above
	h := newHost(t)
	r := h.start(t, "one", "us")
	h.apply(t, spec("one"))
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	if err := h.bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := sync.OnceFunc(func() {
		if err := h.bed.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(back)
	eventually(t, func() error {
		if !strings.Contains(r.log.String(), "connection refused") {
			return errors.New("the operator has not noticed")
		}
		return nil
	})
	h.fleet.Add("d")
	h.wantAnnounced(t, brokerA, "d")
	if err := errors.Join(r.Ready(), r.Live()); err != nil {
		t.Errorf("unfit without an API server: %v", err)
	}
	back()
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = brokerB }))
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	h.fleet.Add("e")
	h.wantAnnounced(t, brokerB, "e")
	h.wantOnce(t)
	eventually(t, func() error {
		if s := h.get(t, "one").Status; s.EventsPublished != 5 {
			return fmt.Errorf("%d events by the status, want 5", s.EventsPublished)
		}
		return nil
	})
}
