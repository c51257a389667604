package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"time"
)

// manySentinelsMemoryBench measures the memory of a process that runs a sentinel for each of a hundred
// configurations.
func manySentinelsMemoryBench() bench {
	const name = "operator.rss_100_configs_mb"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		peak, err := measureManySentinels(ctx, progress, 100, thousand)
		return []line{{kind: "value", name: name, value: float64(peak) / (1 << 20), unit: "MiB", op: "<=", want: 256}}, err
	}}
}

// measureManySentinels returns the peak memory of many sentinels in one process after an outage: half of
// their resources are due at once. They have the settings for many small fleets: pages and the
// record of decisions would otherwise take most of the memory.
func measureManySentinels(ctx context.Context, progress io.Writer, sentinels, resources int) (peakBytes int, err error) {
	_, _ = fmt.Fprintf(progress, "running %d sentinels of %d resources\n", sentinels, resources)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fleet := newServedFleet(resources, time.Now().Add(-20*time.Minute))
	web := httptest.NewServer(fleet)
	defer web.Close()
	config := fmt.Sprintf(`resource_type: clusters
hyperfleet_api: {endpoint: %q, page_size: %d}
decision_history_size: %d
source: {mode: cursor, full_sweep_interval: 10s}
message_data: {resource_id: .id, resource_type: .kind, region: .metadata.labels.region}
`, web.URL, 100, 200)
	// A pod with less memory than the target, because the runtime uses as much memory as its limit
	// allows.
	p, err := startChild(ctx, config, childOptions{Sentinels: sentinels, Memory: 192})
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Stop() }() // the measurement reports errors
	if err := fleet.Await(ctx, func(c fleetCounts) bool { return c.Swept >= 4*sentinels && c.Polls >= 4*sentinels }); err != nil {
		return 0, err
	}
	used, err := p.RequestUsage()
	_, _ = fmt.Fprintf(progress, "%d sentinels: peak %d KiB, %s of CPU\n", sentinels, used.Peak>>10, used.CPU)
	return used.Peak, err
}
