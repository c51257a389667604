package budget

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the budget's. Their labels are closed sets: pools are added up.
type metrics struct {
	budget  *Budget
	denials *prometheus.CounterVec

	nodes, most, recent, mostRecent, exhausted *prometheus.Desc
}

func newMetrics(b *Budget, reg prometheus.Registerer) (*metrics, error) {
	const prefix = "fleetloop_node_fault_budget_"
	m := &metrics{
		budget:     b,
		denials:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "denials_total", Help: "Nodes that were not taken out of service, by what has denied it; one that asks again counts again."}, []string{"reason"}),
		nodes:      prometheus.NewDesc(prefix+"nodes", "Nodes that the budget is for, by how they stand: in service, or out of it by us, by others, or because they are not ready.", []string{"state"}, nil),
		most:       prometheus.NewDesc(prefix+"limit_nodes", "How many nodes may be out of service.", nil, nil),
		recent:     prometheus.NewDesc(prefix+"recent_nodes", "Nodes that were taken out of service within the window.", nil, nil),
		mostRecent: prometheus.NewDesc(prefix+"recent_limit_nodes", "How many nodes may be taken out of service within the window.", nil, nil),
		exhausted:  prometheus.NewDesc(prefix+"exhausted_pools", "Pools whose budget is exhausted, by whether it has to be reset.", []string{"latched"}, nil),
	}
	for _, r := range reasons() {
		m.denials.WithLabelValues(string(r))
	}
	if reg == nil {
		return m, nil
	}
	return m, reg.Register(m)
}

func (m *metrics) denied(why reason) { m.denials.WithLabelValues(string(why)).Inc() }

// Describe names the metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.denials.Describe(ch)
	for _, d := range []*prometheus.Desc{m.nodes, m.most, m.recent, m.mostRecent, m.exhausted} {
		ch <- d
	}
}

// Collect counts the nodes.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.denials.Collect(ch)
	var all Pool
	exhausted := map[bool]int{}
	for _, p := range m.budget.Status(time.Now()) {
		all.Members, all.Most, all.Recent, all.MostRecent = all.Members+p.Members, all.Most+p.Most, all.Recent+p.Recent, all.MostRecent+p.MostRecent
		all.Ours, all.Cordoned, all.NotReady = all.Ours+p.Ours, all.Cordoned+p.Cordoned, all.NotReady+p.NotReady
		if p.Exhausted {
			exhausted[p.Latched]++
		}
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(m.nodes, all.Members-all.Out(), "in_service")
	gauge(m.nodes, all.Ours, "ours")
	gauge(m.nodes, all.Cordoned, "cordoned")
	gauge(m.nodes, all.NotReady, "not_ready")
	gauge(m.most, all.Most)
	gauge(m.recent, all.Recent)
	gauge(m.mostRecent, all.MostRecent)
	gauge(m.exhausted, exhausted[false], "false")
	gauge(m.exhausted, exhausted[true], "true")
}
