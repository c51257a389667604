package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/version"
)

const (
	// scaleEventRate is what the adapter can take per second beside all other processes on two cores. An administrator limits
	// the sentinel to it.
	scaleEventRate = 220
	// scaleReadyBackoff is longer than a run. The repetition of events is measured for itself.
	scaleReadyBackoff = 24 * time.Hour
	// scaleReconcileInterval is the interval of the cluster-worker's comparisons.
	scaleReconcileInterval = time.Hour
	// scaleReports is the number of reports that the cluster-worker sends at a time.
	scaleReports = 32

	scaleProgressEvery = time.Minute
	// scaleSettleBound is the longest time in which a loaded fleet may become ready.
	scaleSettleBound = 3 * time.Hour

	// scaleEditGrace is the time after the last event of an edit for its reports and syncs.
	scaleEditGrace = 10 * time.Second

	updatesPerRow   = 10
	updateBatchSize = 10_000

	updateConnections = 2
)

// workerNamespace has the roles of the cluster-worker. Gardener would create it.
const workerNamespace = `{apiVersion: v1, kind: Namespace, metadata: {name: garden-` + gardenbed.DefaultProject + `}}`

// A scaleReport has the figures of a fleet of one size, on one machine, with one replica of each component.
type scaleReport struct {
	Revision   string `json:"revision"`
	Clusters   int    `json:"clusters"`
	RealGarden bool   `json:"realGarden"` // the real gardener-apiserver, and not the in-memory Gardener

	// Load is the time of the bulk load, and Settle that until all clusters are ready.
	Load   time.Duration `json:"load"`
	Settle time.Duration `json:"settle"`

	// Latency is the time from the acknowledgement of an edit to its event.
	Latency scaleLatency `json:"latency"`

	Processes []scaleUsage `json:"processes"` // from the load until all are ready
	Edits     []scaleUsage `json:"edits"`     // during the edits, with their reports and syncs
	Repeats   []scaleUsage `json:"repeats"`   // while the events of ready clusters are repeated
	// RepeatedReports is the number of reports that the adapter sent for repeated events.
	RepeatedReports int             `json:"repeatedReports"`
	Database        []databaseSizes `json:"database"`
}

type scaleLatency struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	P999  time.Duration `json:"p999"`
	Max   time.Duration `json:"max"`
}

// A scaleUsage is what one process used in some time, in bytes and seconds of CPU.
type scaleUsage struct {
	Process string  `json:"process"`
	Memory  int64   `json:"memory"`
	CPU     float64 `json:"cpu"`
}

// databaseSizes are sizes in bytes at one step.
type databaseSizes struct {
	Step     string           `json:"step"`
	Database int64            `json:"database"`
	Tables   map[string]int64 `json:"tables"` // with indexes
}

// measureScale starts one replica of each component of the loop, loads a fleet, and measures what it costs.
func measureScale(ctx context.Context, p plan, dir string, log *slog.Logger) (err error) {
	t := newTopology(plan{broker: brokerNATS, clusters: p.clusters}, dir, log)
	t.single, t.eventRate, t.publishedCache = true, scaleEventRate, p.clusters
	if t.file, err = history.NewFile(os.DevNull); err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	report := &scaleReport{Revision: version.Get().Revision, Clusters: p.clusters, RealGarden: p.realGarden}
	err = t.measureSteps(running, report)
	cancel()
	if err = errors.Join(err, t.close(), t.file.Close()); err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	report.write(t.out)
	return os.WriteFile(filepath.Join(dir, "scale.json"), append(text, '\n'), 0o644) //nolint:gosec // no secret
}

// measureSteps fills the report, step by step.
func (t *topology) measureSteps(ctx context.Context, report *scaleReport) error {
	if err := t.startForScale(ctx, report.RealGarden); err != nil {
		return err
	}
	watch, err := t.startEventWatch(ctx)
	if err != nil {
		return err
	}
	if err := t.addDatabaseSizes(ctx, report, "empty"); err != nil {
		return err
	}
	begin, err := t.readUsageOfAll()
	if err != nil {
		return err
	}
	if report.Load, err = t.loadClusters(ctx, report); err != nil {
		return fmt.Errorf("load %d clusters: %w", report.Clusters, err)
	}
	if report.Settle, err = t.waitUntilClustersReady(ctx, report.Clusters); err != nil {
		return fmt.Errorf("wait until all clusters are ready: %w", err)
	}
	if err := t.waitUntilReportsStop(ctx); err != nil {
		return fmt.Errorf("wait until the adapter has no more events: %w", err)
	}
	settled, err := t.readUsageOfAll()
	if err != nil {
		return err
	}
	report.Processes = subtractUsage(settled, begin)
	if err := t.addDatabaseSizes(ctx, report, "settled"); err != nil {
		return err
	}
	if report.Latency, err = t.measureEditLatency(ctx, watch); err != nil {
		return fmt.Errorf("measure the latency of edits: %w", err)
	}
	if !pauseFor(ctx, scaleEditGrace) {
		return context.Cause(ctx)
	}
	if report.Edits, err = t.readUsageSince(settled); err != nil {
		return err
	}
	if err := t.measureRepeats(ctx, report); err != nil {
		return fmt.Errorf("measure repeated events: %w", err)
	}
	for _, p := range t.processes("sentinel", "adapter", "cluster-worker") {
		p.close() // otherwise they would sync the updates, which take longer than the measurement
	}
	if err := t.updateAllRowsRepeatedly(ctx); err != nil {
		return fmt.Errorf("update all rows: %w", err)
	}
	return t.addDatabaseSizes(ctx, report, fmt.Sprintf("%d updates of each row", updatesPerRow))
}

// startForScale starts what takes part in the loop, without the controllers of the host cluster.
func (t *topology) startForScale(ctx context.Context, realGarden bool) error {
	var err error
	if t.self, err = os.Executable(); err != nil {
		return err
	}
	startGarden, startWorker := t.createWorkerNamespace, t.startMockWorker
	if realGarden {
		startGarden, startWorker = t.startGarden, t.startClusterWorkers
	}
	return t.runStepsThenAwaitReady(ctx, []startStep{
		{"build the programs", t.buildReleases},
		{"start PostgreSQL", func(ctx context.Context) (err error) {
			if t.database, err = startPrimary(ctx, t.newDatabaseDisk, nil, scaleDatabaseSettings(), t.log); err == nil {
				t.database.single = true
			}
			return err
		}},
		{"start the fleet API", t.startAPIReplicasAndBalancer},
		{"start the broker", t.startBroker},
		{"start the sink", t.startSink},
		{"start Kubernetes", t.startKubernetes},
		{"start Gardener", startGarden},
		{"install the manifests", t.installManifests},
		{"configure the sentinel", func(ctx context.Context) error { return t.setReadyBackoff(ctx, scaleReadyBackoff) }},
		{"start the sentinel", t.startSentinels},
		{"start the adapter", t.startAdapters},
		{"start the cluster-worker", startWorker},
	})
}

// scaleDatabaseSettings returns what an administrator sets for a large database on a machine with 24 GB of memory.
func scaleDatabaseSettings() map[string]string {
	return map[string]string{
		"shared_buffers": "4GB", "max_wal_size": "16GB", "checkpoint_timeout": "15min", "maintenance_work_mem": "512MB",
	}
}

func (t *topology) createWorkerNamespace(ctx context.Context) error {
	return t.applyManifestText(ctx, workerNamespace)
}

// startMockWorker starts a cluster-worker with the in-memory Gardener.
func (t *topology) startMockWorker(ctx context.Context) error {
	return t.startReplicas(ctx, "cluster-worker", workerReplicas, func(p *process, _ string) {
		p.env["DATABASE_URL"] = t.database.clientURL()
		p.env["GARDENER_MODE"] = "mock"
		p.env["RECONCILE_INTERVAL"] = scaleReconcileInterval.String() // each comparison reads and writes all rows
		p.env["CLUSTER_WORKER_MAX_CONCURRENT_REPORTS"] = strconv.Itoa(scaleReports)
		maps.Copy(p.env, t.apiEnv("cluster-worker"))
		maps.Copy(p.env, t.sink.env())
	})
}

// loadClusters creates clusters with a bulk load, and returns how long that took.
func (t *topology) loadClusters(ctx context.Context, report *scaleReport) (time.Duration, error) {
	client, err := t.newClient(tenantBlue)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdle()
	began := time.Now()
	count, spec := report.Clusters, scaleSpec
	if report.RealGarden {
		spec = gardenSpec
	}
	result, err := client.Clusters().Load(ctx, newClusterLines(count, spec), fleetclient.LoadOptions{})
	if err == nil && result.Created != int64(count) {
		err = fmt.Errorf("the server created %d clusters", result.Created)
	}
	_, _ = fmt.Fprintf(t.out, "proof: loaded %d clusters in %s\n", count, time.Since(began).Round(time.Second))
	return time.Since(began), err
}

// Specs of clusters.
const (
	// scaleSpec has a usual size. REGION and NETWORK stand for numbers.
	scaleSpec = `{"version":"1.34.1","provider":{"type":"aws","region":"eu-REGION","zones":["a","b","c"]},` +
		`"network":{"pods":"10.NETWORK.0.0/16","services":"10.200.0.0/16","provider":"cilium"}}`
	// gardenSpec fits the CloudProfile of the real gardener-apiserver.
	gardenSpec = `{"version":"1.34.1"}`
)

// newClusterLines returns the lines of a bulk load: clusters with labels and a spec.
func newClusterLines(count int, spec string) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		buffer := make([]byte, 0, 64<<10)
		for i := range count {
			buffer = fmt.Appendf(buffer, `{"name":"scale-%07d","labels":{"region":"eu-%d","tier":"%d","team":"team-%d"},"spec":`, i, i%7, i%3, i%211)
			numbers := strings.NewReplacer("REGION", strconv.Itoa(i%7), "NETWORK", strconv.Itoa(i%256))
			buffer = append(append(buffer, numbers.Replace(spec)...), "}\n"...)
			if len(buffer) < 32<<10 && i < count-1 {
				continue
			}
			if _, err := writer.Write(buffer); err != nil {
				return // the reader has ended
			}
			buffer = buffer[:0]
		}
		_ = writer.Close() // it returns no error
	}()
	return reader
}

// waitUntilClustersReady waits until each cluster is synced, has a report of the adapter, and is ready, and returns how long that
// took. Of a cluster that is not ready, an event from before an edit can arrive after it.
func (t *topology) waitUntilClustersReady(ctx context.Context, want int) (time.Duration, error) {
	began := time.Now()
	for {
		var synced, reported, ready int
		err := t.database.onPrimary(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `select (select count(*) from tenant.cluster_sync where synced is not null),
				(select count(*) from tenant.adapter_reports where adapter = $1),
				(select count(*) from tenant.clusters where phase = 'Ready')`, history.AdapterName).Scan(&synced, &reported, &ready)
		})
		if err != nil {
			return 0, err
		}
		took := time.Since(began)
		_, _ = fmt.Fprintf(t.out, "proof: %6s  %d synced, %d reported, %d ready\n", took.Round(time.Second), synced, reported, ready)
		if min(synced, reported, ready) >= want {
			return took, nil
		}
		if took > scaleSettleBound {
			return 0, fmt.Errorf("not within %s: of %d clusters %d are synced, %d reported and %d ready", scaleSettleBound, want, synced, reported, ready)
		}
		if !pauseFor(ctx, min(scaleProgressEvery, took/10+time.Second)) {
			return 0, context.Cause(ctx)
		}
	}
}

// waitUntilReportsStop waits until the adapter has handled the events that were published before the clusters were ready.
// The cluster-worker never stops to report.
func (t *topology) waitUntilReportsStop(ctx context.Context) error {
	return poll(ctx, scaleSettleBound, func(ctx context.Context) error {
		if !pauseFor(ctx, scaleEditGrace) {
			return context.Cause(ctx)
		}
		reports, err := t.countReportsSince(ctx, time.Now().Add(-scaleEditGrace))
		if err == nil && reports > 0 {
			err = fmt.Errorf("%d reports in %s", reports, scaleEditGrace)
		}
		return err
	})
}

// countReportsSince returns how many resources the adapter has reported on since a time.
func (t *topology) countReportsSince(ctx context.Context, began time.Time) (reports int, err error) {
	err = t.database.onPrimary(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select count(*) from tenant.adapter_reports where adapter = $1 and last_report_time >= $2",
			history.AdapterName, began).Scan(&reports)
	})
	return reports, err
}
