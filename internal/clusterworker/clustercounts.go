package clusterworker

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// countsMaxAge is how old reported counts may be. Counting costs the database time,
	// and there may be many scrapes.
	countsMaxAge = 15 * time.Second
	// countTimeout limits how long a scrape waits for the counts.
	countTimeout = 5 * time.Second
)

// A ClusterCounter counts the rows.
type ClusterCounter interface {
	CountClusters(ctx context.Context) (ClusterCounts, error)
}

// A clusterCountCollector exports metrics of the rows. It exports none while the rows cannot
// be counted: old numbers would hide the failure.
type clusterCountCollector struct {
	counter  ClusterCounter
	failures prometheus.Counter

	rows, oldestDue, deadRows, oldestTransaction *prometheus.Desc

	mu        sync.Mutex
	counts    ClusterCounts
	ok        bool      // the last count succeeded
	countedAt time.Time // zero before the first count
}

func newClusterCountCollector(counter ClusterCounter, failures prometheus.Counter) *clusterCountCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(metricsPrefix+name, help, labels, nil)
	}
	return &clusterCountCollector{
		counter: counter, failures: failures,
		rows:              desc("clusters", "Number of clusters in the database, by state of their sync to Gardener: pending (the sync is due), running, backing_off (1 to 7 failures in a row; waits for the retry), stuck (8 or more failures in a row; still retried), paused (by a user) or synced. Each cluster has one state.", "state"),
		oldestDue:         desc("oldest_pending_cluster_age_seconds", "Longest time that any cluster has been waiting for a sync to Gardener that is due, in seconds; 0 if no cluster is waiting."),
		deadRows:          desc("sync_table_dead_rows", "Number of dead rows in the PostgreSQL table tenant.cluster_sync. Dead rows slow down the queries of the cluster-worker until PostgreSQL vacuums the table."),
		oldestTransaction: desc("database_oldest_transaction_age_seconds", "Age of the oldest open transaction in the PostgreSQL database, in seconds; 0 if none is open. PostgreSQL cannot vacuum rows that died after this transaction started."),
	}
}

// Describe sends the descriptions of the metrics.
func (c *clusterCountCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.rows, c.oldestDue, c.deadRows, c.oldestTransaction} {
		ch <- d
	}
}

// Collect sends the metrics.
func (c *clusterCountCollector) Collect(ch chan<- prometheus.Metric) {
	counts, ok := c.cachedOrNewCounts()
	if !ok {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...) //nolint:promlinter // it does not find the name here
	}
	for state, n := range map[string]int64{
		"pending": counts.Due, "running": counts.Leased, "backing_off": counts.BackingOff,
		"stuck": counts.Stuck, "paused": counts.Paused, "synced": counts.Synced,
	} {
		gauge(c.rows, float64(n), state)
	}
	gauge(c.oldestDue, counts.OldestDue.Seconds())
	gauge(c.deadRows, float64(counts.DeadRows))
	gauge(c.oldestTransaction, counts.OldestTransaction.Seconds())
}

// cachedOrNewCounts returns the last counts, or new ones if the last are too old. Concurrent
// callers wait for a count in progress.
func (c *clusterCountCollector) cachedOrNewCounts() (counts ClusterCounts, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.countedAt.IsZero() && time.Since(c.countedAt) < countsMaxAge {
		return c.counts, c.ok
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	counts, err := c.counter.CountClusters(ctx)
	if err != nil {
		c.failures.Inc()
	}
	c.counts, c.ok, c.countedAt = counts, err == nil, time.Now()
	return c.counts, c.ok
}
