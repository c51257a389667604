package alerts_test

import "maps"

// clusters are the labels of the alerts about the shard us of the clusters,
// which the SentinelConfig one asks for, scraped from one deployment in the
// namespace fleet.
var clusters = map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "shard": "us", "resource_type": "clusters"}

// with gives the labels of clusters with another value of one.
func with(key, value string) map[string]string {
	list := maps.Clone(clusters)
	list[key] = value
	return list
}

// scenarios tries the alerts by their names.
func scenarios() map[string][]scenario {
	all := map[string][]scenario{}
	for _, list := range []map[string][]scenario{loop(), sweeps(), dependencies(), configurations(), groups(), api(), timeline(), worker(), shoots(), controller(), executions(), faults(), repairs(), changeEvents(), webConsole()} {
		maps.Copy(all, list)
	}
	return all
}

// loop is about sentinels that are gone or stand still.
func loop() map[string][]scenario {
	return map[string][]scenario{
		"SentinelMissing": {
			{
				reason: "nothing is scraped for five minutes",
				series: "  up 1x10\n",
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of a sentinel."}}},
			},
			{
				reason: "it was only restarted",
				series: "  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{instance=\"a\"} 0 0 stale _ _ 300 360 420 480 540 600\n",
				want:   map[int][]alert{7: nil, 10: nil},
			},
		},
		"SentinelShardMissing": {
			{
				reason: "one of two shards is watched no more",
				series: `
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 5x120 stale
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="b",shard="eu",resource_type="clusters"} 5x250
`,
				want: map[int][]alert{
					120: nil, 125: nil,
					126: {{labels: clusters, summary: "No sentinel watches clusters (us) anymore."}},
					170: {{labels: clusters, summary: "No sentinel watches clusters (us) anymore."}},
					190: nil, // after an hour it is taken for wanted
				},
			},
			{
				reason: "another replica took over",
				series: `
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 5x120 stale
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} _x119 5x100
`,
				want: map[int][]alert{126: nil, 150: nil},
			},
		},
		"SentinelNoSuccessfulPoll": {
			{
				reason: "rounds end well, then no more, of a process with one configuration",
				series: `
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",instance="a",shard="us",resource_type="clusters"} 0+60x5 300x10
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} 0x15
`,
				want: map[int][]alert{
					7: nil, // 120 seconds
					8: nil, // for less than a minute
					9: {{
						labels:  map[string]string{"namespace": "fleet", "job": "sentinel", "shard": "us", "resource_type": "clusters"},
						summary: "The sentinel has had no successful poll of clusters (us) for 4m 0s.",
					}},
				},
			},
			{
				reason: "one of two replicas stands still",
				series: `
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+60x20
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 60x20
`,
				want: map[int][]alert{3: nil, 5: {{labels: clusters, summary: "The sentinel has had no successful poll of clusters (us) for 4m 0s."}}},
			},
			{
				reason: "no round has ever ended well: since the process began",
				series: `
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} _x9 0x20
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} _x9 600x20
`,
				want: map[int][]alert{13: nil, 14: {{labels: clusters, summary: "The sentinel has had no successful poll of clusters (us) for 4m 0s."}}},
			},
			{
				reason: "its first round ends after a minute",
				series: `
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} _x9 0 660+60x20
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} _x9 600x20
`,
				want: map[int][]alert{11: nil, 14: nil},
			},
			{
				reason: "two SentinelConfigs of one process watch the same",
				series: `
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+60x20
  hyperfleet_sentinel_last_successful_poll_timestamp_seconds{namespace="fleet",job="sentinel",config="two",instance="a",shard="us",resource_type="clusters"} 60x20
`,
				want: map[int][]alert{5: {{labels: with("config", "two"), summary: "The sentinel has had no successful poll of clusters (us) for 4m 0s."}}},
			},
		},
		"SentinelPollOverruns": {
			{
				reason: "of two replicas one overruns every minute",
				series: `
  hyperfleet_sentinel_poll_overruns_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+1x60
  hyperfleet_sentinel_poll_overruns_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x60
`,
				want: map[int][]alert{20: nil, 21: {{labels: clusters, summary: "Polls of clusters (us) take longer than the poll interval."}}},
			},
			{
				reason: "each of two overruns once in four minutes",
				series: `
  hyperfleet_sentinel_poll_overruns_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0x3 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x3
  hyperfleet_sentinel_poll_overruns_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x3 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x3
`,
				want: map[int][]alert{30: nil, 63: nil},
			},
		},
	}
}

// sweeps is about what is seen late, or not.
func sweeps() map[string][]scenario {
	return map[string][]scenario{
		"SentinelFullSweepStale": {
			{
				reason: "one of two replicas follows changes and lists no more",
				series: `
  hyperfleet_sentinel_last_full_sweep_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 60x100
  hyperfleet_sentinel_last_full_sweep_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0+60x100
`,
				want: map[int][]alert{
					61: nil, 66: nil,
					67: {{labels: clusters, summary: "The sentinel has not completed a full list of clusters (us) for 1h 6m 0s."}},
				},
			},
			{
				reason: "the first listing never came to its end",
				series: `
  hyperfleet_sentinel_last_full_sweep_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0x100
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} 60x100
`,
				want: map[int][]alert{66: nil, 67: {{labels: clusters, summary: "The sentinel has not completed a full list of clusters (us) for 1h 6m 0s."}}},
			},
			{
				reason: "it lists every ten minutes",
				series: `
  hyperfleet_sentinel_last_full_sweep_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0x9 600x9 1200x9 1800x9 2400x9 3000x9 3600x9 4200x9
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} 0x100
`,
				want: map[int][]alert{30: nil, 79: nil},
			},
		},
		"SentinelGenerationUnreconciled": {
			{
				reason: "the worst of two replicas counts",
				series: `
  hyperfleet_sentinel_oldest_unreconciled_generation_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 30x40
  hyperfleet_sentinel_oldest_unreconciled_generation_seconds{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0+60x40
`,
				want: map[int][]alert{
					15: nil, 20: nil,
					21: {{labels: clusters, summary: "Adapters have not processed a change to clusters (us) that is 21m 0s old."}},
				},
			},
			{
				reason: "adapters answer within ten minutes",
				series: `
  hyperfleet_sentinel_oldest_unreconciled_generation_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+60x10 0+60x10 0+60x10
`,
				want: map[int][]alert{10: nil, 30: nil},
			},
		},
	}
}

// dependencies is about the fleet API and the broker.
func dependencies() map[string][]scenario {
	return map[string][]scenario{
		"SentinelBrokerErrors": {
			{
				reason: "one of two replicas of a shard gives events up, and another shard none",
				series: `
  hyperfleet_sentinel_broker_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",broker_type="rabbitmq"} 0+3x30
  hyperfleet_sentinel_broker_errors_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters",broker_type="rabbitmq"} 0x30
  hyperfleet_sentinel_broker_errors_total{namespace="fleet",job="sentinel",config="one",instance="c",shard="eu",resource_type="clusters",broker_type="rabbitmq"} 0x30
`,
				want: map[int][]alert{
					5:  nil,
					6:  {{labels: with("broker_type", "rabbitmq"), summary: "The sentinel failed to publish events for clusters (us) to the broker (rabbitmq). Number of failures in 5 minutes: 15."}},
					20: {{labels: with("broker_type", "rabbitmq"), summary: "The sentinel failed to publish events for clusters (us) to the broker (rabbitmq). Number of failures in 5 minutes: 15."}},
				},
			},
			{
				reason: "the broker was restarted once",
				series: `
  hyperfleet_sentinel_broker_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",broker_type="rabbitmq"} 0x5 40x30
`,
				want: map[int][]alert{6: nil, 10: nil, 12: nil},
			},
		},
		"SentinelAPIErrors": {
			{
				reason: "no list gets through for more than ten minutes",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="fetch_resources"} 0+12x30
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters",operation="fetch_resources"} 0x30
`,
				want: map[int][]alert{10: nil, 11: {{labels: clusters, summary: "The sentinel cannot read clusters (us) from the fleet API."}}},
			},
			{
				reason: "the API was restarted",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="fetch_resources"} 0x3 12x40
`,
				want: map[int][]alert{6: nil, 15: nil},
			},
			{
				reason: "it is the SentinelConfig that cannot be read",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="fetch_resources"} 0x30
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="config_load"} 0+2x30
`,
				want: map[int][]alert{30: nil},
			},
		},
	}
}
