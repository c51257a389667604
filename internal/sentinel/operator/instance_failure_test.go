package operator_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// TestRefusalsLeaveWhatRuns checks that a refused configuration changes nothing.
func TestRefusalsLeaveWhatRuns(t *testing.T) {
	boom := errors.New("spec.pollInterval: boom")
	cases := map[string]struct {
		reason string
		do     func(*instanceRig)
		want   operator.RefusalReason
	}{
		"Invalid": {"a spec that makes no sense", func(r *instanceRig) {
			r.RefuseGeneration(operator.Refusal{Generation: 2, Reason: operator.ReasonInvalid, Err: boom})
		}, operator.ReasonInvalid},
		"Secret": {"a Secret that is missing", func(r *instanceRig) {
			r.RefuseGeneration(operator.Refusal{Generation: 2, Reason: operator.ReasonSecret, Err: boom})
		}, operator.ReasonSecret},
		"Unopenable": {"a broker for which there is no client", func(r *instanceRig) { r.Apply(newWantedConfig(2, onBroker(brokerB))) }, operator.ReasonUnopenable},
		"Engine": {
			"what only the engine finds",
			func(r *instanceRig) {
				r.Apply(newWantedConfig(2, func(s *sentinelconfig.Settings) { s.Sentinel.LabelSelector = "=" }))
			},
			operator.ReasonUnopenable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newInstanceRig(t, nil)
				r.brokers.SetRefuse(brokerB, true)
				tc.do(r)
				pass(time.Second)
				s := r.wantState(t, 0, tc.want, "")
				if err := r.Ready(); err == nil || err.Error() != s.Refusal.Err.Error() {
					t.Errorf("%s: ready says %v, want why nothing runs", tc.reason, err)
				}
				r.Apply(newWantedConfig(1))
				pass(2 * time.Second)
				r.wantState(t, 1, "", "")
				tc.do(r)
				pass(time.Second)
				s = r.wantState(t, 1, tc.want, "")
				if s.Seen != 2 || s.Refusal.Generation != 2 || strings.Contains(s.Refusal.Err.Error(), "canary") {
					t.Errorf("%s: state is %+v, want the refusal of generation 2, without a password", tc.reason, s)
				}
				r.fleet.BumpGenerations()
				pass(2 * time.Second)
				r.wantEvents(t, map[string]int{brokerA: 6})
				if err := r.Ready(); err != nil {
					t.Errorf("%s: not ready: %v", tc.reason, err)
				}
				if good, _ := r.metric(t, "config_last_reload_successful"); good != 0 {
					t.Errorf("%s: the metric says that the last change is in force", tc.reason)
				}
				if loads, _ := r.metric(t, "api_errors_total"); loads != 1 {
					t.Errorf("%s: %v errors counted, want 1", tc.reason, loads)
				}
				r.Apply(newWantedConfig(3))
				pass(time.Second)
				r.wantState(t, 3, "", "")
			})
		})
	}
}

// TestInstanceFailures checks that a failed part is restarted after a while. Earlier announcements may be
// repeated under the same id.
func TestInstanceFailures(t *testing.T) {
	cases := map[string]struct {
		reason  string
		begin   func(*instanceRig)
		end     func(*instanceRig)
		failure string
	}{
		"API": {
			"the client of the API panics",
			func(r *instanceRig) { r.fleet.SetPanic(fleetA, true) }, func(r *instanceRig) { r.fleet.SetPanic(fleetA, false) },
			"panic in fleet API client",
		},
		"Publish": {
			"the client of the broker panics",
			func(r *instanceRig) { r.brokers.SetPanic(brokerA, true); r.fleet.BumpGenerations() }, func(r *instanceRig) { r.brokers.SetPanic(brokerA, false) },
			"panic in broker client",
		},
		"Callback": {
			"a goroutine of the sentinel itself panics",
			func(r *instanceRig) { r.panics.Store(true); r.fleet.BumpGenerations() }, func(r *instanceRig) { r.panics.Store(false) },
			"panic in the sentinel: told of an event",
		},
		"Ends": {
			"the client of the broker ends",
			func(r *instanceRig) { r.brokers.End(brokerA, errors.New("for no reason at "+brokerA)) }, func(*instanceRig) {},
			"the client of the message broker stopped unexpectedly; see the log of the sentinel\nfor no reason at ***",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newInstanceRig(t, nil)
				r.Apply(newWantedConfig(1))
				pass(2500 * time.Millisecond)
				tc.begin(r)
				for n := 0; r.CurrentState().Failure == nil && n < 100; n++ {
					pass(20 * time.Millisecond)
				}
				r.wantState(t, 1, "", tc.failure)
				if r.Ready() == nil {
					t.Errorf("%s: it says that it is ready", tc.reason)
				}
				tc.end(r)
				pass(10 * time.Second)
				if s := r.wantState(t, 1, "", ""); s.Changes != 1 {
					t.Errorf("%s: %d changes, want 1: a start is none", tc.reason, s.Changes)
				}
				if err := r.Ready(); err != nil {
					t.Errorf("%s: not ready afterwards: %v", tc.reason, err)
				}
				r.fleet.BumpGenerations()
				pass(2 * time.Second)
				last := map[string]bool{}
				for _, e := range r.brokers.Events() {
					last[e.Subject] = true
				}
				if len(last) != 3 {
					t.Errorf("%s: events about %d clusters, want 3", tc.reason, len(last))
				}
				if _, series := r.metric(t, "events_published_total"); series != 1 {
					t.Errorf("%s: %d series, want 1", tc.reason, series)
				}
				if n := r.brokers.Running(brokerA); n != 1 {
					t.Errorf("%s: %d clients run, want 1", tc.reason, n)
				}
			})
		})
	}
}

// TestInstancePanicWhileOpening checks that the running sentinel continues after a panic, and that the open
// is retried.
func TestInstancePanicWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		r := newInstanceRig(t, func(d *operator.InstanceDeps) {
			open := d.OpenBroker
			d.OpenBroker = func(b sentinelconfig.Broker) (operator.Broker, error) {
				if panics.Load() && b.URL == brokerB {
					panic("opening " + brokerB)
				}
				return open(b)
			}
		})
		panics.Store(true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, onBroker(brokerB)))
		pass(time.Second)
		r.wantState(t, 1, "", "panic in the instance: opening ***")
		r.fleet.BumpGenerations()
		pass(2 * time.Second)
		r.wantEvents(t, map[string]int{brokerA: 6})
		panics.Store(false)
		pass(time.Minute)
		r.wantState(t, 2, "", "")
	})
}

// TestInstanceGoodAgain checks that a refusal ends when the configuration in force is wanted again, even if
// it has not changed.
func TestInstanceGoodAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.RefuseGeneration(operator.Refusal{Generation: 1, Reason: operator.ReasonSecret, Err: errors.New("gone for a moment")})
		pass(time.Second)
		r.wantState(t, 1, operator.ReasonSecret, "")
		r.Apply(newWantedConfig(1))
		pass(time.Second)
		r.wantState(t, 1, "", "")
		if good, _ := r.metric(t, "config_last_reload_successful"); good != 1 {
			t.Error("the metric says that the last change is not in force")
		}
	})
}

// TestWaitingIsNoRefusal checks that an earlier refusal does not affect a generation that waits for
// its broker. Another notification about that generation changes nothing.
func TestWaitingIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.brokers.SetAway(brokerB, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.RefuseGeneration(operator.Refusal{Generation: 2, Reason: operator.ReasonInvalid, Err: errors.New("boom")})
		pass(time.Second)
		r.Apply(newWantedConfig(3, onBroker(brokerB)))
		pass(5 * time.Second)
		before := r.wantState(t, 1, "", "").Pending
		if before == nil || before.Generation != 3 {
			t.Fatalf("pending is %+v, want generation 3", before)
		}
		r.Apply(newWantedConfig(3, onBroker(brokerB)))
		pass(time.Second)
		if now := r.wantState(t, 1, "", "").Pending; now == nil || !now.Since.Equal(before.Since) {
			t.Errorf("pending is %+v, want %+v", now, before)
		}
		if n := len(r.brokers.Opened()); n != 2 {
			t.Errorf("%d clients made, want 2", n)
		}
		r.brokers.SetAway(brokerB, false)
		pass(2 * time.Second)
		if s := r.wantState(t, 3, "", ""); s.Pending != nil {
			t.Errorf("pending is %+v, want nothing", s.Pending)
		}
	})
}

// TestFailureWhileAnotherWaits checks that a waiting configuration does not come into force with
// connections of a failed sentinel.
func TestFailureWhileAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.fleet.SetAway(fleetB, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, onFleet(fleetB))) // with the broker of the first
		pass(5 * time.Second)
		r.fleet.SetPanic(fleetA, true)
		pass(2 * time.Second)
		r.fleet.SetPanic(fleetA, false)
		pass(30 * time.Second)
		if s := r.wantState(t, 1, "", ""); s.Pending == nil {
			t.Error("the second configuration does not wait any more")
		}
		r.fleet.SetAway(fleetB, false)
		pass(30 * time.Second)
		r.wantState(t, 2, "", "")
		if err := r.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		if n := r.brokers.Running(brokerA); n != 1 {
			t.Errorf("%d clients of the broker run, want 1", n)
		}
	})
}

// TestWaitingReplacesFailedOne checks that a waiting configuration comes into force although the failed
// sentinel cannot be started again.
func TestWaitingReplacesFailedOne(t *testing.T) {
	errGone := errors.New("the certificate is gone")
	cases := map[string]func(*operator.InstanceDeps, *atomic.Bool){
		"Open": func(d *operator.InstanceDeps, fails *atomic.Bool) {
			open := d.OpenAPI
			d.OpenAPI = func(api sentinel.API) (operator.FleetAPI, error) {
				if api.Endpoint == fleetA && fails.Load() {
					return nil, errGone
				}
				return open(api)
			}
		},
		"Start": func(d *operator.InstanceDeps, fails *atomic.Bool) {
			join := d.NewGroup
			d.NewGroup = func() (operator.ReplicaGroup, error) {
				if fails.Load() {
					return nil, errGone
				}
				return join()
			}
		},
	}
	for name, fail := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fails atomic.Bool
				r := newInstanceRig(t, func(d *operator.InstanceDeps) { fail(d, &fails) })
				r.brokers.SetAway(brokerB, true)
				r.Apply(newWantedConfig(1, func(s *sentinelconfig.Settings) { s.Sharding.Mode = v1alpha1.ShardingAuto }))
				pass(2 * time.Second)
				r.Apply(newWantedConfig(2, onFleet(fleetB), onBroker(brokerB)))
				pass(5 * time.Second)
				if s := r.wantState(t, 1, "", ""); s.Pending == nil {
					t.Fatal("the second configuration does not wait")
				}
				fails.Store(true)
				r.fleet.SetPanic(fleetA, true)
				pass(time.Second)
				r.brokers.SetAway(brokerB, false)
				pass(time.Minute)
				r.wantState(t, 2, "", "")
				if err := r.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
				if n := r.brokers.Running(brokerA); n != 0 {
					t.Errorf("%d clients of the old broker run, want none", n)
				}
			})
		})
	}
}

// TestInstanceOpensLater checks that a connection that cannot be created is retried.
func TestInstanceOpensLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.brokers.SetRefuse(brokerA, true)
		r.Apply(newWantedConfig(1))
		pass(time.Minute)
		r.wantState(t, 0, operator.ReasonUnopenable, "")
		r.brokers.SetRefuse(brokerA, false)
		pass(time.Minute)
		r.wantState(t, 1, "", "")
		r.wantEvents(t, map[string]int{brokerA: 3})
	})
}

// TestInstanceGroupEnds checks that a stopped group is joined again, also after a change of the
// configuration. Without the group a replica is not ready.
func TestInstanceGroupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auto := func(s *sentinelconfig.Settings) { s.Sharding.Mode = v1alpha1.ShardingAuto }
		r := newInstanceRig(t, nil)
		r.Apply(newWantedConfig(1, auto))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, auto, onBroker(brokerB)))
		pass(2 * time.Second)
		r.wantState(t, 2, "", "")
		r.groups[0].ends <- errors.New("for no reason")
		synctest.Wait()
		r.wantState(t, 2, "", "shard group stopped unexpectedly\nfor no reason")
		pass(10 * time.Second)
		r.wantState(t, 2, "", "")
		if len(r.groups) != 2 || r.Ready() != nil {
			t.Fatalf("joined %d times, ready says %v; want twice, and ready", len(r.groups), r.Ready())
		}
		r.groups[1].running.Store(false)
		if err := r.Ready(); err == nil || err.Error() != "not joined" {
			t.Errorf("ready says %v, want why it owns nothing", err)
		}
	})
}

// TestConcealsWhatIsInForce checks that the secrets of the running configuration are hidden after a
// refusal of the wanted generation.
func TestConcealsWhatIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.RefuseGeneration(operator.Refusal{Generation: 2, Reason: operator.ReasonInvalid, Err: errors.New("boom")})
		pass(time.Second)
		r.brokers.SetRefuse(brokerA, true) // with an error that holds the address
		r.brokers.End(brokerA, errors.New("for no reason"))
		pass(5 * time.Second)
		r.wantState(t, 1, operator.ReasonInvalid, `"***" is no address`)
		r.brokers.SetRefuse(brokerA, false)
		pass(time.Minute)
		r.wantState(t, 1, operator.ReasonInvalid, "")
		if good, _ := r.metric(t, "config_last_reload_successful"); good != 0 {
			t.Error("the metric says that the last change is in force")
		}
	})
}
