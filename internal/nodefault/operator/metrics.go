package operator

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// metrics holds the metrics of the operator. Labels are phases and actions, but never
// names of nodes or sources.
type metrics struct {
	actions    *prometheus.CounterVec
	toCordon   prometheus.Histogram
	ruleErrors prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, l lister) (*metrics, error) {
	m := &metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_node_fault_actions_total",
			Help: "Total number of actions that node-fault-controller performed on nodes, by action (such as cordon or drain-started) and outcome: succeeded, failed or dry_run (the action was only recorded, and the node was not changed).",
		}, []string{"action", "outcome"}),
		toCordon: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fleetloop_node_fault_cordon_delay_seconds",
			Help:    "Time from the detection of a fault until node-fault-controller cordons the node, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 12),
		}),
		ruleErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetloop_node_fault_rule_errors_total",
			Help: "Total number of failed evaluations of node fault rules. A rule decides which action a node fault requires.",
		}),
	}
	return m, errors.Join(
		reg.Register(m.actions),
		reg.Register(m.toCordon),
		reg.Register(m.ruleErrors),
		reg.Register(newPhaseGauges(l)),
	)
}

// A lister lists all NodeFaults from a cache.
type lister interface {
	List(ctx context.Context) ([]v1alpha1.NodeFault, error)
}

// cachedFaultLister lists NodeFaults from a cache.
type cachedFaultLister struct{ client client.Reader }

// List reads the cache without copies, because each NodeFault has dozens of records, and
// each scrape lists all of them. The caller must not change them.
func (l cachedFaultLister) List(ctx context.Context) ([]v1alpha1.NodeFault, error) {
	var all v1alpha1.NodeFaultList
	err := l.client.List(ctx, &all, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// phaseGauges collects the number of NodeFaults by phase.
type phaseGauges struct {
	faults        lister
	count, oldest *prometheus.GaugeVec
}

func newPhaseGauges(l lister) phaseGauges {
	return phaseGauges{
		faults: l,
		count: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleetloop_node_faults",
			Help: "Number of NodeFault objects, by phase, such as Quarantined or Draining. A NodeFault records the faults of one node and its repair.",
		}, []string{"phase"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleetloop_node_fault_phase_max_age_seconds",
			Help: "Longest time that any NodeFault has been in its current phase, in seconds, by phase; 0 if no NodeFault is in the phase. A NodeFault records the faults of one node and its repair.",
		}, []string{"phase"}),
	}
}

// Describe implements prometheus.Collector.
func (g phaseGauges) Describe(ch chan<- *prometheus.Desc) {
	g.count.Describe(ch)
	g.oldest.Describe(ch)
}

// allPhases returns all phases, because an alert does not work with a series that
// vanishes.
func allPhases() []v1alpha1.Phase {
	return []v1alpha1.Phase{
		v1alpha1.PhaseObserved,
		v1alpha1.PhasePending,
		v1alpha1.PhaseDryRun,
		v1alpha1.PhaseQuarantined,
		v1alpha1.PhaseDraining,
		v1alpha1.PhaseRemediating,
		v1alpha1.PhaseRecovering,
		v1alpha1.PhaseHeld,
		v1alpha1.PhaseOverridden,
		v1alpha1.PhaseStuck,
		v1alpha1.PhaseHealthy,
		v1alpha1.PhaseGone,
	}
}

// Collect implements prometheus.Collector.
func (g phaseGauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all, err := g.faults.List(ctx)
	if err != nil { // the cache has not started
		return
	}
	count, oldest := map[v1alpha1.Phase]float64{}, map[v1alpha1.Phase]float64{}
	for i := range all {
		status := &all[i].Status
		count[status.Phase]++
		if status.PhaseChangedAt != nil {
			age := time.Since(status.PhaseChangedAt.Time).Seconds()
			oldest[status.Phase] = max(oldest[status.Phase], age)
		}
	}
	for _, p := range allPhases() {
		g.count.WithLabelValues(string(p)).Set(count[p])
		g.oldest.WithLabelValues(string(p)).Set(oldest[p])
	}
	g.count.Collect(ch)
	g.oldest.Collect(ch)
}

// emptyLister is a lister without NodeFaults.
type emptyLister struct{}

// List returns nothing.
func (emptyLister) List(context.Context) ([]v1alpha1.NodeFault, error) { return nil, nil }
