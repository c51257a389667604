package alerts_test

// service are the labels of an alert about all workers of a database, scraped
// from one deployment in the namespace fleet.
func service() map[string]string {
	return map[string]string{"namespace": "fleet", "job": "cluster-worker"}
}

// worker is about the sync of clusters to Gardener.
func worker() map[string][]scenario {
	return map[string][]scenario{
		"ClusterWorkerMissing": {
			{
				reason: "nothing is scraped for five minutes",
				series: "  up 1x10\n",
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of a cluster-worker."}}},
			},
			{
				reason: "one of two was restarted",
				series: `
  fleetloop_clusterworker_max_concurrent_syncs{namespace="fleet",job="cluster-worker",instance="a"} 32x3 stale _x20
  fleetloop_clusterworker_max_concurrent_syncs{namespace="fleet",job="cluster-worker",instance="b"} 32x30
`,
				want: map[int][]alert{10: nil, 20: nil},
			},
		},
		"ClusterWorkerGardenerDown": {
			{
				reason: "both workers have stopped trying",
				series: `
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 0x3 1x20 0x10
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="b"} 0x3 1x20 0x10
`,
				want: map[int][]alert{
					8:  nil,
					9:  {{labels: service(), summary: "Gardener is unavailable. Number of affected cluster-worker pods: 2."}},
					26: nil,
				},
			},
			{
				reason: "one of two cannot reach it",
				series: `
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 1x20
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="b"} 0x20
`,
				want: map[int][]alert{5: {{labels: service(), summary: "Gardener is unavailable. Number of affected cluster-worker pods: 1."}}},
			},
			{
				reason: "it was updated, and away for four minutes",
				series: `  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 0x3 1x3 0x20
`,
				want: map[int][]alert{6: nil, 9: nil, 15: nil},
			},
		},
		"ClusterWorkerBacklog": {
			{
				reason: "a cluster is due, and the workers, all of whom see it, do not take it",
				series: `
  fleetloop_clusterworker_oldest_pending_cluster_age_seconds{namespace="fleet",job="cluster-worker",instance="a"} 0+60x30
  fleetloop_clusterworker_oldest_pending_cluster_age_seconds{namespace="fleet",job="cluster-worker",instance="b"} 0+60x30
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 0x30
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="b"} 1x30
`,
				want: map[int][]alert{
					15: nil,
					16: {{labels: service(), summary: "A cluster has been waiting for its sync to Gardener for 16m 0s."}},
				},
			},
			{
				reason: "Gardener is down, which another alert tells",
				series: `
  fleetloop_clusterworker_oldest_pending_cluster_age_seconds{namespace="fleet",job="cluster-worker",instance="a"} 0+60x30
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 1x30
`,
				want: map[int][]alert{16: nil, 30: nil},
			},
			{
				reason: "much to do, and it is done",
				series: `
  fleetloop_clusterworker_oldest_pending_cluster_age_seconds{namespace="fleet",job="cluster-worker",instance="a"} 0+60x9 0+60x9 0+60x9
  fleetloop_clusterworker_circuit_breaker_open{namespace="fleet",job="cluster-worker",instance="a"} 0x30
`,
				want: map[int][]alert{9: nil, 19: nil, 29: nil},
			},
		},
		"ClusterWorkerClustersStuck": {
			{
				reason: "three clusters, of whom both workers tell",
				series: `
  fleetloop_clusterworker_clusters{namespace="fleet",job="cluster-worker",instance="a",state="stuck"} 0x3 3x30
  fleetloop_clusterworker_clusters{namespace="fleet",job="cluster-worker",instance="b",state="stuck"} 0x3 3x30
  fleetloop_clusterworker_clusters{namespace="fleet",job="cluster-worker",instance="b",state="synced"} 100x40
`,
				want: map[int][]alert{
					18: nil,
					19: {{labels: service(), summary: "Number of clusters whose sync to Gardener fails repeatedly: 3."}},
				},
			},
			{
				reason: "many fail, but none for long",
				series: `
  fleetloop_clusterworker_clusters{namespace="fleet",job="cluster-worker",instance="a",state="stuck"} 0x40
  fleetloop_clusterworker_clusters{namespace="fleet",job="cluster-worker",instance="a",state="backing_off"} 50x40
`,
				want: map[int][]alert{20: nil, 40: nil},
			},
		},
		"ClusterWorkerClusterCountFailing": {
			{
				reason: "no count succeeds",
				series: `  fleetloop_clusterworker_cluster_count_errors_total{namespace="fleet",job="cluster-worker",instance="a"} 0+2x30
`,
				want: map[int][]alert{5: nil, 6: {{labels: service(), summary: "The cluster-worker cannot count the clusters in its database. Number of failures in 5 minutes: 10."}}},
			},
			{
				reason: "the database failed over",
				series: `  fleetloop_clusterworker_cluster_count_errors_total{namespace="fleet",job="cluster-worker",instance="a"} 0x3 2x30
`,
				want: map[int][]alert{6: nil, 9: nil, 20: nil},
			},
		},
		"ClusterWorkerNotListening": {
			{
				reason: "a pooler lets one of two not listen",
				series: `
  fleetloop_clusterworker_listener_down{namespace="fleet",job="cluster-worker",instance="a"} 1x20 0x5
  fleetloop_clusterworker_listener_down{namespace="fleet",job="cluster-worker",instance="b"} 0x25
`,
				want: map[int][]alert{
					4:  nil,
					5:  {{labels: service(), summary: "Number of cluster-worker pods without a LISTEN connection to PostgreSQL: 1."}},
					21: nil,
				},
			},
			{
				reason: "it need not, or does",
				series: `  fleetloop_clusterworker_listener_down{namespace="fleet",job="cluster-worker",instance="a"} 0x30
`,
				want: map[int][]alert{30: nil},
			},
		},
		"ClusterWorkerPanics": {
			{
				reason: "one cluster makes the worker fail",
				series: `
  fleetloop_clusterworker_panics_total{namespace="fleet",job="cluster-worker",instance="a"} 0x3 1x30
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="panic"} 0x33
`,
				want: map[int][]alert{
					4:  nil,
					5:  {{labels: service(), summary: "The cluster-worker panicked. Number of panics in 15 minutes: 1."}},
					25: nil,
				},
			},
			{
				reason: "or whoever observes the Shoots",
				series: `
  fleetloop_clusterworker_panics_total{namespace="fleet",job="cluster-worker",instance="a"} 0x33
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="panic"} 0x3 1x30
`,
				want: map[int][]alert{5: {{labels: service(), summary: "The cluster-worker panicked. Number of panics in 15 minutes: 1."}}},
			},
			{
				reason: "there was one long ago",
				series: `
  fleetloop_clusterworker_panics_total{namespace="fleet",job="cluster-worker",instance="a"} 1x30
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="panic"} 0x30
`,
				want: map[int][]alert{30: nil},
			},
		},
	}
}

// shoots is about what is seen of Shoots, and told.
func shoots() map[string][]scenario {
	return map[string][]scenario{
		"ClusterWorkerNoLeader": {
			{
				reason: "nobody gets the term",
				series: `
  fleetloop_clusterworker_leader{namespace="fleet",job="cluster-worker",instance="a"} 1x3 0x20
  fleetloop_clusterworker_leader{namespace="fleet",job="cluster-worker",instance="b"} 0x23
`,
				want: map[int][]alert{
					8: nil,
					9: {{labels: service(), summary: "No cluster-worker is the leader."}},
				},
			},
			{
				reason: "another takes over",
				series: `
  fleetloop_clusterworker_leader{namespace="fleet",job="cluster-worker",instance="a"} 1x3 0x20
  fleetloop_clusterworker_leader{namespace="fleet",job="cluster-worker",instance="b"} 0x5 1x20
`,
				want: map[int][]alert{9: nil, 20: nil},
			},
		},
		"ClusterWorkerShootWatchErrors": {
			{
				reason: "no list succeeds",
				series: `
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="unavailable"} 0+1x40
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="database"} 0x40
`,
				want: map[int][]alert{
					15: nil,
					30: {{labels: service(), summary: "The cluster-worker failed 10 times in 10 minutes to watch Shoots or to record their status."}},
				},
			},
			{
				reason: "a right that is not given, which is asked for now and then, and faults that have an alert of their own",
				series: `
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="forbidden"} 0+1x40
  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="panic"} 0+1x40
`,
				want: map[int][]alert{40: nil},
			},
			{
				reason: "a watch ends every five minutes",
				series: `  fleetloop_clusterworker_shoot_watch_errors_total{namespace="fleet",job="cluster-worker",instance="a",class="unknown"} 0x4 1x4 2x4 3x4 4x4 5x4 6x4 7x4
`,
				want: map[int][]alert{30: nil, 39: nil},
			},
		},
		"ClusterWorkerReportsFailing": {
			{
				reason: "the token is not good",
				series: `
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="stored"} 50x40
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="failed"} 0+10x40
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="b",result="stored"} 0x40
`,
				want: map[int][]alert{
					10: nil,
					11: {{labels: service(), summary: "The fleet API stores no status reports of the cluster-worker. Number of failed reports in 10 minutes: 100."}},
				},
			},
			{
				reason: "some fail, others do not",
				series: `
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="stored"} 0+5x40
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="failed"} 0+5x40
`,
				want: map[int][]alert{30: nil},
			},
			{
				reason: "there is nothing to report",
				series: `
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="stored"} 0x40
  fleetloop_clusterworker_reports_total{namespace="fleet",job="cluster-worker",instance="a",result="failed"} 0x40
`,
				want: map[int][]alert{30: nil},
			},
		},
		"ClusterWorkerShootsInError": {
			{
				reason: "two stay in error, as whoever observes sees it",
				series: `
  fleetloop_clusterworker_shoots{namespace="fleet",job="cluster-worker",instance="a",status="error"} 2x40
  fleetloop_clusterworker_shoots{namespace="fleet",job="cluster-worker",instance="b",status="error"} 0x40
  fleetloop_clusterworker_shoots{namespace="fleet",job="cluster-worker",instance="a",status="ready"} 50x40
`,
				want: map[int][]alert{29: nil, 30: {{labels: service(), summary: "Number of clusters whose Shoot has an error in Gardener: 2."}}},
			},
			{
				reason: "Gardener recovers within a quarter of an hour",
				series: `  fleetloop_clusterworker_shoots{namespace="fleet",job="cluster-worker",instance="a",status="error"} 1x15 0x10 1x15
`,
				want: map[int][]alert{15: nil, 30: nil, 41: nil},
			},
		},
		"ClusterWorkerOrphanShoots": {
			{
				reason: "a Shoot without a cluster, and a cluster with two",
				series: `
  fleetloop_clusterworker_orphan_shoots{namespace="fleet",job="cluster-worker",instance="a"} 1x40
  fleetloop_clusterworker_duplicate_shoots{namespace="fleet",job="cluster-worker",instance="a"} 1x40
  fleetloop_clusterworker_orphan_shoots{namespace="fleet",job="cluster-worker",instance="b"} 0x40
  fleetloop_clusterworker_duplicate_shoots{namespace="fleet",job="cluster-worker",instance="b"} 0x40
`,
				want: map[int][]alert{14: nil, 15: {{labels: service(), summary: "Number of Shoots of this installation that no cluster needs: 2."}}},
			},
			{
				reason: "one is deleted by the next list",
				series: `
  fleetloop_clusterworker_orphan_shoots{namespace="fleet",job="cluster-worker",instance="a"} 1x9 0x30
  fleetloop_clusterworker_duplicate_shoots{namespace="fleet",job="cluster-worker",instance="a"} 0x40
`,
				want: map[int][]alert{15: nil, 30: nil},
			},
		},
		"ClusterWorkerWrongDatabase": {
			{
				reason: "after every list",
				series: `  fleetloop_clusterworker_orphan_cleanup_blocked_total{namespace="fleet",job="cluster-worker",instance="a"} 0x4 1x4 2x4 3x4 4x4
`,
				want: map[int][]alert{
					9:  nil,
					11: {{labels: service(), summary: "The cluster-worker does not delete Shoots without a cluster, because its database may be the wrong one. Number of skipped cleanups in 15 minutes: 2."}},
				},
			},
			{
				reason: "never",
				series: `  fleetloop_clusterworker_orphan_cleanup_blocked_total{namespace="fleet",job="cluster-worker",instance="a"} 0x30
`,
				want: map[int][]alert{30: nil},
			},
		},
	}
}
