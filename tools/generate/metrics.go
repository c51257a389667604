package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// A metric is one row of the table.
type metric struct{ name, kind, labels, help string }

// renderMetricReference lists the metrics of a process that runs all components.
func renderMetricReference() ([]byte, error) {
	reg := &recorder{}
	if err := allinone.RegisterAllMetrics(reg); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	buf.WriteString(
		generated + "# Metrics\n\nServed at `/metrics`, with `fleetloop_build_info` and the metrics of the Go runtime (`go_*`) and the process (`process_*`).\n" +
			"If one process runs several SentinelConfigs, `hyperfleet_sentinel_*` metrics also have the label `" + operator.LabelConfig + "`, the name of the SentinelConfig.\n" +
			"`hyperfleet_sentinel_shard_*` metrics always have it.\n\n",
	)
	buf.WriteString("| Name | Type | Labels | Description |\n|---|---|---|---|\n")
	slices.SortFunc(reg.found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	for _, m := range slices.Compact(reg.found) {
		fmt.Fprintf(&buf, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
	}
	return buf.Bytes(), nil
}

// A recorder is a registerer that only records metrics.
type recorder struct{ found []metric }

// Register records the description of c.
func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 64)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		m := parseDesc(d.String(), detectMetricKind(c))
		if m.kind == "gauge" && strings.HasSuffix(m.name, "_total") { // of a collector with several metrics
			m.kind = "counter"
		}
		r.found = append(r.found, m)
	}
	return nil
}

// MustRegister records the descriptions of all of list.
func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = r.Register(c) // never fails
	}
}

// Unregister does nothing.
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

func detectMetricKind(c prometheus.Collector) string {
	// A gauge also has the methods of a counter, so it is checked first.
	switch c.(type) {
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	return "gauge"
}

// parseDesc parses a Desc's text, which is its only public representation.
func parseDesc(text, kind string) metric {
	field := func(name string) string {
		m := regexp.MustCompile(name + `: "((?:[^"\\]|\\.)*)"`).FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		return m[1]
	}
	var labels []string
	constant := regexp.MustCompile(`constLabels: \{([^}]*)\}`).FindStringSubmatch(text)
	if constant != nil {
		for _, m := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(constant[1], -1) {
			labels = append(labels, "`"+m[1]+"`")
		}
	}
	if m := regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindStringSubmatch(text); m != nil && m[1] != "" {
		for l := range strings.SplitSeq(m[1], ",") {
			labels = append(labels, "`"+l+"`")
		}
	}
	return metric{name: field("fqName"), kind: kind, labels: strings.Join(labels, ", "), help: field("help")}
}
