package budget

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the budget. Their labels are closed sets; the values are
// sums over all pools.
type metrics struct {
	budget  *Budget
	denials *prometheus.CounterVec

	nodes, limits, recent, exhausted *prometheus.GaugeVec
}

func newMetrics(b *Budget, reg prometheus.Registerer) (*metrics, error) {
	const prefix = "fleetloop_node_fault_budget_"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		budget: b,
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "denials_total",
			Help: "Total number of times that node-fault-controller was not allowed to take a faulty node out of service, by reason: max_nodes (too many nodes are out of service), window (too many were taken out of service within budget.window), recovering (after max_nodes, too few nodes are back in service), manual_reset (a person must reset the pool) or not_selected (the budget settings exclude the node). Each retry is counted.",
		}, []string{"reason"}),
		nodes:     gauge(prefix+"nodes", "Number of nodes, by state: in_service, quarantined (cordoned by node-fault-controller), cordoned_by_others or not_ready. Each node has one state. Nodes that the settings of node-fault-controller exclude, by default those of the control plane, are not counted.", "state"),
		limits:    gauge(prefix+"limit_nodes", "Number of nodes that may be out of service, added up over all node pools, by limit: out_of_service (nodes out of service at the same time) or window (nodes taken out of service within the time span of the setting budget.window).", "limit"),
		recent:    gauge(prefix+"window_nodes", "Number of nodes that node-fault-controller took out of service in the most recent time window. The setting budget.window sets the length of the window; the default is 5 minutes."),
		exhausted: gauge(prefix+"exhausted_pools", "Number of node pools in which node-fault-controller takes no further node out of service, because too many nodes are already out of service, by manual_reset: true (a person must reset the pool) or false (the pool recovers automatically).", "manual_reset"),
	}
	for _, r := range allDenialReasons() {
		m.denials.WithLabelValues(string(r))
	}
	if reg == nil {
		return m, nil
	}
	return m, reg.Register(m)
}

func (m *metrics) countDenial(why denialReason) { m.denials.WithLabelValues(string(why)).Inc() }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.denials.Describe(ch)
	for _, g := range []*prometheus.GaugeVec{m.nodes, m.limits, m.recent, m.exhausted} {
		g.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It counts the nodes.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	var all Pool // the sums over all pools
	exhausted := map[bool]int{}
	for _, p := range m.budget.Status(time.Now()) {
		all.Members += p.Members
		all.Most += p.Most
		all.Ours += p.Ours
		all.Cordoned += p.Cordoned
		all.NotReady += p.NotReady
		all.Recent += p.Recent
		all.MostRecent += p.MostRecent
		if p.Exhausted {
			exhausted[p.Latched]++
		}
	}
	byState := map[string]int{
		"in_service":         all.Members - all.OutOfService(),
		"quarantined":        all.Ours,
		"cordoned_by_others": all.Cordoned,
		"not_ready":          all.NotReady,
	}
	for state, n := range byState {
		m.nodes.WithLabelValues(state).Set(float64(n))
	}
	m.limits.WithLabelValues("out_of_service").Set(float64(all.Most))
	m.limits.WithLabelValues("window").Set(float64(all.MostRecent))
	m.recent.WithLabelValues().Set(float64(all.Recent))
	for _, latched := range []bool{false, true} {
		m.exhausted.WithLabelValues(strconv.FormatBool(latched)).Set(float64(exhausted[latched]))
	}
	m.denials.Collect(ch)
	for _, g := range []*prometheus.GaugeVec{m.nodes, m.limits, m.recent, m.exhausted} {
		g.Collect(ch)
	}
}
