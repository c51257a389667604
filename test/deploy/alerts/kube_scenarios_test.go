package alerts_test

// configurations is about SentinelConfigs.
func configurations() map[string][]scenario {
	return map[string][]scenario{
		"SentinelConfigRejected": {
			{
				reason: "a change is refused until it is mended",
				series: `
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 1x4 0x10 1x20
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="b",shard="eu",resource_type="clusters"} 1x40
`,
				want: map[int][]alert{
					9:  nil,
					10: {{labels: clusters, summary: "The sentinel rejected the latest configuration for clusters (us)."}},
					17: nil,
				},
			},
			{
				reason: "one of two replicas refuses it",
				series: `
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="a",shard="us",resource_type="clusters"} 1x20
  hyperfleet_sentinel_config_last_reload_successful{namespace="fleet",job="sentinel",config="one",instance="b",shard="us",resource_type="clusters"} 0x20
`,
				want: map[int][]alert{5: {{labels: clusters, summary: "The sentinel rejected the latest configuration for clusters (us)."}}},
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
						summary: "The sentinel cannot load the SentinelConfig for clusters (us), or a Secret that it references.",
					}},
				},
			},
			{
				reason: "it was never loaded",
				series: `
  hyperfleet_sentinel_api_errors_total{namespace="fleet",job="sentinel",config="one",instance="a",shard="not loaded",resource_type="clusters",operation="config_load"} 1+2x30
`,
				want: map[int][]alert{
					10: nil,
					11: {{
						labels:  map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "shard": "not loaded", "resource_type": "clusters"},
						summary: "The sentinel cannot load the SentinelConfig for clusters (not loaded), or a Secret that it references.",
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
		"SentinelConfigNotRunning": {
			{
				reason: "two of a hundred are invalid from the start, as the worst of two replicas sees it",
				series: `
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="running"} 98x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="not_running"} 2x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="b",state="running"} 99x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="b",state="not_running"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{
					labels:  map[string]string{"namespace": "fleet", "job": "sentinel"},
					summary: "Number of SentinelConfigs without a running sentinel: 2.",
				}}},
			},
			{
				reason: "one of each shard is invalid",
				series: `
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",shard="region=us",resource_type="clusters",state="not_running"} 1x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",shard="not loaded",resource_type="nodepools",state="not_running"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{
					labels:  map[string]string{"namespace": "fleet", "job": "sentinel"},
					summary: "Number of SentinelConfigs without a running sentinel: 2.",
				}}},
			},
			{
				reason: "they are on their way",
				series: `
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="running"} 0 98x20
  hyperfleet_sentinel_configs{namespace="fleet",job="sentinel",instance="a",state="not_running"} 98 0x20
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
		"SentinelAllReplicasFenced": {
			{
				reason: "all replicas have lost their leases",
				series: `
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="a"} 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="one",instance="b"} 0x4 1x20
  hyperfleet_sentinel_shard_fenced{namespace="fleet",job="sentinel",config="two",instance="a"} 0x20
`,
				want: map[int][]alert{
					6: nil,
					7: {{labels: group, summary: "All replicas of SentinelConfig one are fenced, so none of them publishes events."}},
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
						{labels: map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "instance": "b:8080"}, summary: "Replica b:8080 of SentinelConfig one is fenced and publishes no events."},
						{labels: map[string]string{"namespace": "fleet", "job": "sentinel", "config": "one", "pod": "sentinel-0", "instance": "a"}, summary: "Replica sentinel-0 of SentinelConfig one is fenced and publishes no events."},
					},
				},
			},
			{
				reason: "it is joining",
				series: "  hyperfleet_sentinel_shard_fenced{namespace=\"fleet\",job=\"sentinel\",config=\"one\",pod=\"sentinel-0\",instance=\"a\"} 1 0x20\n",
				want:   map[int][]alert{0: nil, 10: nil},
			},
		},
		"SentinelReplicaCountMismatch": {
			{
				reason: "two know of each other, the third knows of itself only",
				series: `
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="a"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="b"} 2x20
  hyperfleet_sentinel_shard_members{namespace="fleet",job="sentinel",config="one",instance="c"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{labels: group, summary: "The replicas of SentinelConfig one disagree about the number of replicas."}}},
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
				want: map[int][]alert{10: nil, 11: {{labels: service, summary: "The 99th percentile of the request duration of the fleet API is 1.9s."}}},
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
		"FleetAPIStandbyUnused": {
			{
				reason: "one of two replicas reads from the primary",
				series: `
  fleetloop_api_standby_usable{namespace="fleet",job="fleet-api",instance="a"} 1x30
  fleetloop_api_standby_usable{namespace="fleet",job="fleet-api",instance="b"} 1x4 0x26
`,
				want: map[int][]alert{14: nil, 16: {{labels: service, summary: "The fleet API does not use its standby database."}}},
			},
			{
				reason: "the standby is away for a short while",
				series: `
  fleetloop_api_standby_usable{namespace="fleet",job="fleet-api",instance="a"} 1x4 0x4 1x20
`,
				want: map[int][]alert{12: nil, 20: nil},
			},
		},
	}
}
