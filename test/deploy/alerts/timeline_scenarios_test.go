package alerts_test

// timeline is about what is told to the fleet API, and kept there.
func timeline() map[string][]scenario {
	service := map[string]string{"namespace": "fleet", "job": "fleet-api"}
	told := func(code, values string) string {
		return `  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/api/changes/{cluster}",method="POST",code="` + code + `"} ` + values + "\n"
	}
	taken := func(values string) string {
		return `  fleetloop_timeline_events_received_total{namespace="fleet",job="fleet-api",instance="a",result="stored"} ` + values + "\n"
	}
	failed := func(values string) string {
		return `  nvsentinel_change_events_failed_total{namespace="fleet",job="cluster-worker",instance="w",action="shoot-created",error="connection"} ` + values + "\n"
	}
	kept := func(instance, values string) string {
		return `  fleetloop_timeline_last_maintenance_timestamp_seconds{namespace="fleet",job="fleet-api",instance="` + instance + `"} ` + values + "\n"
	}
	overdue := func(values string) string {
		return `  fleetloop_timeline_expired_partitions{namespace="fleet",job="fleet-api",instance="a"} ` + values + "\n"
	}
	silent := []alert{{
		labels:  map[string]string{"namespace": "fleet", "job": "cluster-worker"},
		summary: "The fleet API has received no change events for 30 minutes, while cluster-worker fails to deliver them.",
	}}
	return map[string][]scenario{
		"TimelineIngestFailing": {
			{
				reason: "a tenth cannot be kept, which is nothing among all requests",
				series: told("2xx", "0+9x20") + told("5xx", "0+1x20") +
					`  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="2xx"} 0+1000x20
`,
				want: map[int][]alert{5: nil, 6: {{labels: service, summary: "10% of the requests that store change events in the fleet API fail."}}},
			},
			{
				reason: "all is refused, which is the senders' fault",
				series: told("2xx", "0x20") + told("4xx", "0+10x20"),
				want:   map[int][]alert{20: nil},
			},
			{
				reason: "others cannot be answered",
				series: told("2xx", "0+9x20") + `  fleetloop_api_requests_total{namespace="fleet",job="fleet-api",instance="a",path="/x",method="GET",code="5xx"} 0+10x20
`,
				want: map[int][]alert{20: nil},
			},
		},
		"TimelineNotReceivingEvents": {
			{
				reason: "the way there is closed, and then open again",
				series: taken("0+2x20 40x50 42+2x40") + failed("0x20 0+3x49 150x40"),
				want:   map[int][]alert{22: nil, 56: silent, 72: nil, 90: nil},
			},
			{
				reason: "the fleet API is gone, and with it its metrics",
				series: taken("0+2x20 stale") + failed("0x20 0+3x60"),
				want:   map[int][]alert{22: nil, 60: silent},
			},
			{
				reason: "the first event of all cannot be delivered since nobody has the token, and somebody else has told it of others",
				series: taken("7x60") + failed("_x20 1x60"),
				want:   map[int][]alert{20: nil, 26: silent},
			},
			{
				reason: "it is another sink that fails",
				series: taken("0+1x90") + failed("0+3x90"),
				want:   map[int][]alert{40: nil, 90: nil},
			},
			{
				reason: "the timeline was never told of anything: it is no sink",
				series: taken("0x90") + failed("0+3x90"),
				want:   map[int][]alert{40: nil, 90: nil},
			},
			{
				reason: "nothing happens",
				series: taken("5x90") + failed("3x90"),
				want:   map[int][]alert{40: nil, 90: nil},
			},
		},
		"TimelineMaintenanceStale": {
			{
				reason: "neither replica can, since the tenth minute",
				series: kept("a", "0+60x10 600x80") + kept("b", "0+60x4 240x86"),
				want: map[int][]alert{
					75: nil,
					76: {{labels: service, summary: "The fleet API has not maintained the partitions of its change event table for 1h 6m 0s."}},
				},
			},
			{
				reason: "one never could since it began",
				series: kept("a", "0x80") + "  process_start_time_seconds{namespace=\"fleet\",job=\"fleet-api\",instance=\"a\"} 0x80\n",
				want:   map[int][]alert{65: nil, 66: {{labels: service, summary: "The fleet API has not maintained the partitions of its change event table for 1h 6m 0s."}}},
			},
			{
				reason: "one does what another cannot",
				series: kept("a", "0+60x90") + kept("b", "0x90") + "  process_start_time_seconds{namespace=\"fleet\",job=\"fleet-api\",instance=\"b\"} 0x90\n",
				want:   map[int][]alert{90: nil},
			},
		},
		"TimelineRetentionExceeded": {
			{
				reason: "somebody has left a transaction open",
				series: overdue("0x4 1x800"),
				want:   map[int][]alert{724: nil, 725: {{labels: service, summary: "The fleet API cannot drop expired partitions of its change event table. Number of partitions: 1."}}},
			},
			{
				reason: "a backup takes the night",
				series: overdue("0x4 1x600 0x200"),
				want:   map[int][]alert{604: nil, 800: nil},
			},
		},
	}
}
