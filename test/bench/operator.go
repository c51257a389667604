package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelbench"
	"github.com/fleetloop/fleetloop/test/bench/child"
)

// manyBench measures the memory of a process that runs a sentinel for each of
// a hundred configurations.
func manyBench() bench {
	const name = "operator.rss_100_configs_mb"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		peak, err := measureMany(ctx, progress, 100, thousand)
		return []line{{kind: "value", name: name, value: float64(peak) / (1 << 20), unit: "MiB", op: "<=", want: 256}}, err
	}}
}

// measureMany gives the peak of the memory of many sentinels in one process,
// which come back after an outage: half of their resources are due at once. They
// are set as they are for small fleets of which there are many: pages and the
// record of decisions are the most that each would take.
func measureMany(ctx context.Context, progress io.Writer, sentinels, resources int) (peak int, err error) {
	_, _ = fmt.Fprintf(progress, "running %d sentinels of %d resources\n", sentinels, resources)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fleet := sentinelbench.NewFleet(resources, time.Now().Add(-20*time.Minute))
	web := httptest.NewServer(fleet)
	defer web.Close()
	config := fmt.Sprintf(`resource_type: clusters
hyperfleet_api: {endpoint: %q, page_size: %d}
decision_history_size: %d
source: {mode: cursor, full_sweep_interval: 10s}
message_data: {resource_id: .id, resource_type: .kind, region: .metadata.labels.region}
`, web.URL, 100, 200)
	// A pod that is smaller than what is wanted at most: the runtime takes what it
	// is told that there is.
	p, err := child.Start(ctx, config, child.Options{Sentinels: sentinels, Memory: 192})
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Stop() }() // what went wrong, the measurement tells
	if err := fleet.Await(ctx, func(c sentinelbench.Counts) bool { return c.Swept >= 4*sentinels && c.Polls >= 4*sentinels }); err != nil {
		return 0, err
	}
	used, err := p.Used()
	_, _ = fmt.Fprintf(progress, "%d sentinels: peak %d KiB, %s of CPU\n", sentinels, used.Peak>>10, used.CPU)
	return used.Peak, err
}
