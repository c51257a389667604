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
	for _, list := range []map[string][]scenario{loop(), sweeps(), dependencies(), configurations(), groups(), api()} {
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
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "No sentinel is scraped; nothing nudges the adapters."}}},
			},
			{
				reason: "it was only restarted",
				series: "  hyperfleet_sentinel_last_successful_round_timestamp_seconds{instance=\"a\"} 0 0 stale _ _ 300 360 420 480 540 600\n",
				want:   map[int][]alert{7: nil, 10: nil},
			},
		},
		"SentinelShardGone": {
			{
				reason: "one of two shards is watched no more",
				series: `
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 5x120 stale
  hyperfleet_sentinel_pending_resources{namespace="fleet",job="sentinel",config="one",instance="b",shard="eu",resource_type="clusters"} 5x250
`,
				want: map[int][]alert{
					120: nil, 125: nil,
					126: {{labels: clusters, summary: "clusters (us): a sentinel watched it within the last hour, and none does now."}},
					170: {{labels: clusters, summary: "clusters (us): a sentinel watched it within the last hour, and none does now."}},
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
		"SentinelRoundStale": {
			{
				reason: "rounds end well, then no more, of a process with one configuration",
				series: `
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",instance="a",shard="us",resource_type="clusters"} 0+60x5 300x10
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} 0x15
`,
				want: map[int][]alert{
					7: nil, // 120 seconds
					8: nil, // for less than a minute
					9: {{
						labels:  map[string]string{"namespace": "fleet", "job": "sentinel", "shard": "us", "resource_type": "clusters"},
						summary: "clusters (us): no good round for 4m 0s.",
					}},
				},
			},
			{
				reason: "one of two replicas stands still",
				series: `
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+60x20
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 60x20
`,
				want: map[int][]alert{3: nil, 5: {{labels: clusters, summary: "clusters (us): no good round for 4m 0s."}}},
			},
			{
				reason: "no round has ever ended well: since the process began",
				series: `
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} _x9 0x20
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} _x9 600x20
`,
				want: map[int][]alert{13: nil, 14: {{labels: clusters, summary: "clusters (us): no good round for 4m 0s."}}},
			},
			{
				reason: "its first round ends after a minute",
				series: `
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} _x9 0 660+60x20
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} _x9 600x20
`,
				want: map[int][]alert{11: nil, 14: nil},
			},
			{
				reason: "two SentinelConfigs of one process watch the same",
				series: `
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+60x20
  hyperfleet_sentinel_last_successful_round_timestamp_seconds{namespace="fleet",job="sentinel",config="two",instance="a",shard="us",resource_type="clusters"} 60x20
`,
				want: map[int][]alert{5: {{labels: with("config", "two"), summary: "clusters (us): no good round for 4m 0s."}}},
			},
		},
		"SentinelRoundOverruns": {
			{
				reason: "of two replicas one overruns every minute",
				series: `
  hyperfleet_sentinel_round_overruns_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0+1x60
  hyperfleet_sentinel_round_overruns_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x60
`,
				want: map[int][]alert{20: nil, 21: {{labels: clusters, summary: "clusters (us): rounds take longer than the poll interval."}}},
			},
			{
				reason: "each of two overruns once in four minutes",
				series: `
  hyperfleet_sentinel_round_overruns_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0x3 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x3
  hyperfleet_sentinel_round_overruns_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x3 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x3
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
					67: {{labels: clusters, summary: "clusters (us): not everything was listed for 1h 6m 0s; what the faster way missed stays missed."}},
				},
			},
			{
				reason: "the first listing never came to its end",
				series: `
  hyperfleet_sentinel_last_full_sweep_timestamp_seconds{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 0x100
  process_start_time_seconds{namespace="fleet",job="sentinel",instance="a"} 60x100
`,
				want: map[int][]alert{66: nil, 67: {{labels: clusters, summary: "clusters (us): not everything was listed for 1h 6m 0s; what the faster way missed stays missed."}}},
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
					21: {{labels: clusters, summary: "clusters (us): a changed spec has waited for its adapters for 21m 0s."}},
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
					6:  {{labels: with("broker_type", "rabbitmq"), summary: "clusters (us): events do not reach the broker (rabbitmq)."}},
					20: {{labels: with("broker_type", "rabbitmq"), summary: "clusters (us): events do not reach the broker (rabbitmq)."}},
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
				want: map[int][]alert{10: nil, 11: {{labels: clusters, summary: "clusters (us): the fleet API cannot be read."}}},
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

// configurations is about SentinelConfigs.
func configurations() map[string][]scenario {
	return map[string][]scenario{
		"SentinelConfigRefused": {
			{
				reason: "a change is refused until it is mended",
				series: `
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 1x4 0x10 1x20
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="b",shard="eu",resource_type="clusters"} 1x40
`,
				want: map[int][]alert{
					9:  nil,
					10: {{labels: clusters, summary: "clusters (us): the last change of the configuration is not in force; what was configured before goes on."}},
					17: nil,
				},
			},
			{
				reason: "one of two replicas refuses it",
				series: `
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 1x20
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x20
`,
				want: map[int][]alert{5: {{labels: clusters, summary: "clusters (us): the last change of the configuration is not in force; what was configured before goes on."}}},
			},
		},
		"SentinelConfigLoadErrors": {
			{
				reason: "the API server answers no more",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="config_load"} 0+2x30
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters",operation="config_load"} 0x30
`,
				want: map[int][]alert{
					10: nil,
					11: {{
						labels:  clusters,
						summary: "clusters (us): its SentinelConfig or a Secret of it cannot be read; a change would not be seen.",
					}},
				},
			},
			{
				reason: "it was away for a minute",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="config_load"} 0x3 2x40
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters",operation="fetch_resources"} 0+2x40
`,
				want: map[int][]alert{11: nil, 15: nil, 30: nil},
			},
		},
		"SentinelConfigUnserved": {
			{
				reason: "two of a hundred are invalid from the start, as the worst of two replicas sees it",
				series: `
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="served"} 98x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="unserved"} 2x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="b",state="served"} 99x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="b",state="unserved"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{
					labels:  map[string]string{"namespace": "fleet", "job": "sentinel"},
					summary: "SentinelConfigs for which no sentinel runs: 2. Nothing nudges the adapters of what they watch.",
				}}},
			},
			{
				reason: "they are on their way",
				series: `
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="served"} 0 98x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="unserved"} 98 0x20
`,
				want: map[int][]alert{0: nil, 10: nil},
			},
		},
	}
}

// groups is about replicas that divide a fleet.
func groups() map[string][]scenario {
	group := map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one"}
	return map[string][]scenario{
		"SentinelGroupUnserved": {
			{
				reason: "all replicas have lost their leases",
				series: `
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="a"} 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="b"} 0x4 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="two",instance="a"} 0x20
`,
				want: map[int][]alert{
					6: nil,
					7: {{labels: group, summary: "None of the sentinels that share what one selects is sure of its share, so none publishes."}},
				},
			},
			{
				reason: "one serves while another has lost its lease",
				series: `
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="a"} 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="b"} 0x20
`,
				want: map[int][]alert{20: nil},
			},
		},
		"SentinelReplicaFenced": {
			{
				reason: "the replica is named by its pod, or by its address",
				series: `
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",pod="sentinel-0",instance="a"} 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="b:8080"} 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",pod="sentinel-2",instance="c"} 0x20
`,
				want: map[int][]alert{
					4: nil,
					5: {
						{labels: map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "instance": "b:8080"}, summary: "b:8080 shares what one selects with others and owns nothing of it."},
						{labels: map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "pod": "sentinel-0", "instance": "a"}, summary: "sentinel-0 shares what one selects with others and owns nothing of it."},
					},
				},
			},
			{
				reason: "it is joining",
				series: "  hyperfleet_sentinel_shard_fenced{namespace=\"fleet\",job=\"sentinel\",config=\"one\",pod=\"sentinel-0\",instance=\"a\"} 1 0x20\n",
				want:   map[int][]alert{0: nil, 10: nil},
			},
		},
		"SentinelGroupDisagrees": {
			{
				reason: "two know of each other, the third knows of itself only",
				series: `
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="a"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="b"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="c"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{labels: group, summary: "The sentinels that share what one selects do not agree on how many they are; some resources may wait for an owner."}}},
			},
			{
				reason: "they agree",
				series: `
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="a"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="b"} 2x20
`,
				want: map[int][]alert{20: nil},
			},
			{
				reason: "one does not know yet",
				series: `
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="a"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="b"} 0x20
`,
				want: map[int][]alert{20: nil},
			},
			{
				reason: "two groups of different size",
				series: `
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="a"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="two",instance="a"} 3x20
`,
				want: map[int][]alert{20: nil},
			},
		},
	}
}

// api is about the fleet API itself.
func api() map[string][]scenario {
	service := map[string]string{"namespace": "fleet", "job": "fleet-api"}
	return map[string][]scenario{
		"FleetAPIErrors": {
			{
				reason: "one in ten fails, over all replicas and paths",
				series: `
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="2xx"} 0+45x20
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="b",path="/x",method="GET",code="2xx"} 0+45x20
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="b",path="/y",method="PUT",code="5xx"} 0+4x20
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="b",path="/x",method="GET",code="5xx"} 0+6x20
`,
				want: map[int][]alert{5: nil, 6: {{labels: service, summary: "10% of the requests to the fleet API fail."}}},
			},
			{
				reason: "one in twenty fails, which is the bound",
				series: `
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="2xx"} 0+95x20
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="5xx"} 0+5x20
`,
				want: map[int][]alert{20: nil},
			},
			{
				reason: "nobody asks",
				series: `
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="2xx"} 7x20
  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="5xx"} 3x20
`,
				want: map[int][]alert{20: nil},
			},
		},
		"FleetAPISlow": {
			{
				reason: "one of two replicas takes two seconds for its tenth of the requests",
				series: `
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="1"} 0+90x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="2"} 0+90x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="+Inf"} 0+90x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="b",path="/x",method="GET",le="1"} 0x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="b",path="/x",method="GET",le="2"} 0+10x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="b",path="/x",method="GET",le="+Inf"} 0+10x30
`,
				want: map[int][]alert{10: nil, 11: {{labels: service, summary: "The slowest hundredth of requests to the fleet API takes 1.9s."}}},
			},
			{
				reason: "a short while of slow requests",
				series: `
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="1"} 0+10x40
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="2"} 0+10x4 100+10x40
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="+Inf"} 0+10x4 100+10x40
`,
				want: map[int][]alert{12: nil, 16: nil},
			},
			{
				reason: "one in a thousand does",
				series: `
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="1"} 0+999x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="2"} 0+1000x30
  fleetloop_api_request_duration_seconds_bucket{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",le="+Inf"} 0+1000x30
`,
				want: map[int][]alert{30: nil},
			},
		},
	}
}
