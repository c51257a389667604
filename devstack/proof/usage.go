package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	usageEvery = 10 * time.Second

	probeEvery = time.Second
	// probeTimeout is how long a controller waits for a response when it renews its Lease.
	probeTimeout = 5 * time.Second
)

// recordAPIServerOutages records when the host's API server did not respond to a read of the Leases in time, until ctx
// ends. Then a leader ends itself, as it should.
func (t *topology) recordAPIServerOutages(ctx context.Context) {
	last := time.Now()
	for pauseFor(ctx, probeEvery) {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		err := t.people.admin.List(probe, &coordinationv1.LeaseList{}, client.InNamespace(hostNamespace))
		cancel()
		if err != nil {
			continue
		}
		now := time.Now()
		if now.Sub(last) > probeTimeout {
			t.file.Add(history.Record{Silence: &history.Silence{Server: "kube-apiserver", Start: last, End: now}})
		}
		last = now
	}
}

// memoryLimits returns the memory limits of the containers in the chart. The execution controller keeps
// 256 MiB of its limit for processes that it starts.
func memoryLimits() map[string]int64 {
	const mi = 1 << 20
	return map[string]int64{
		"fleet-api":             512 * mi,
		"sentinel":              128 * mi,
		"cluster-worker":        512 * mi,
		"execution-controller":  (768 - 256) * mi,
		"node-fault-controller": 512 * mi,
	}
}

// recordUsage records what each process uses until ctx ends. A process that does not answer is skipped.
func (t *topology) recordUsage(ctx context.Context) {
	for pauseFor(ctx, usageEvery) {
		for _, p := range t.processes() {
			if p.metric == "" {
				continue
			}
			if u, err := p.readUsageFromMetrics(ctx); err == nil {
				t.file.Add(history.Record{Usage: u})
			}
		}
	}
}

func (p *process) readUsageFromMetrics(ctx context.Context) (*history.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metric+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	u := &history.Usage{
		Process:    p.name,
		Memory:     int64(gaugeOf(families, "process_resident_memory_bytes")),
		Goroutines: int(gaugeOf(families, "go_goroutines")),
		Files:      int(gaugeOf(families, "process_open_fds")),
	}
	if u.Memory == 0 || u.Goroutines == 0 || u.Files == 0 {
		return nil, fmt.Errorf("metrics of %s: the usage is missing", p.name)
	}
	return u, nil
}

// gaugeOf returns the value of a gauge without labels, or 0.
func gaugeOf(families map[string]*dto.MetricFamily, name string) float64 {
	list := families[name].GetMetric()
	if len(list) == 0 {
		return 0
	}
	return list[0].GetGauge().GetValue()
}
