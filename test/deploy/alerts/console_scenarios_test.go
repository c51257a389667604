package alerts_test

// webConsole is about the console.
func webConsole() map[string][]scenario {
	area := func(name string) map[string]string {
		return map[string]string{"namespace": "fleet", "job": "console", "area": name}
	}
	return map[string][]scenario{
		"ConsoleMissing": {
			{
				reason: "nothing is scraped for five minutes",
				series: "  up 1x10\n",
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of the console."}}},
			},
			{
				reason: "one of two replicas was restarted, and no page is open",
				series: `
  fleetloop_console_streams{namespace="fleet",job="console",instance="a"} 0x3 stale _x20
  fleetloop_console_streams{namespace="fleet",job="console",instance="b"} 0x30
`,
				want: map[int][]alert{10: nil, 20: nil},
			},
		},
		"ConsoleErrors": {
			{
				reason: "the database of the sessions is down, which both replicas see; the page is still served",
				series: `
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="console",code="2xx"} 0+30x40
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="console",code="5xx"} 0x3 0+10x12 120x20
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="b",area="console",code="2xx"} 0+30x40
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="b",area="console",code="5xx"} 0x3 0+10x12 120x20
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="b",area="page",code="2xx"} 0+10x40
`,
				want: map[int][]alert{
					8:  nil,
					14: {{labels: area("console"), summary: "25% of the requests to the console fail (console)."}},
					25: nil,
				},
			},
			{
				reason: "one request of a quiet night",
				series: `
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="api",code="2xx"} 0x40
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="api",code="5xx"} 0x3 1x36
`,
				want: map[int][]alert{5: nil, 9: nil, 20: nil},
			},
			{
				reason: "few of many",
				series: `
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="api",code="2xx"} 0+1000x30
  fleetloop_console_requests_total{namespace="fleet",job="console",instance="a",area="api",code="5xx"} 0+10x30
`,
				want: map[int][]alert{10: nil, 30: nil},
			},
		},
	}
}
