package bed_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestNodeFaults applies the node fault controller of the chart with all that
// can be chosen, a janitor of its own and all components telling of changes.
func TestNodeFaults(t *testing.T) {
	ns, jobs, acting, c := restricted(t), kubebedtest.Namespace(t), restricted(t), newCluster(t)
	values := newValues(t, `
global: {changeEvents: {enabled: true, endpoint: https://e.example.com, clusterName: a, sinks: [{name: pager, format: pagerduty, endpoint: https://p.example.com, secretRefs: {routingKey: {name: pd, key: k}}}]}}
fleetApi: {enabled: false}
sentinel: {enabled: false}
clusterWorker: {enabled: true, api: {url: https://fleet.example.com}}
nodeFaultController:
  enabled: true
  rules: [{name: gpu, match: fault.fatal, drain: true, remedies: [reboot]}]
  budget: {on_exhausted: manual-reset}
  drain: {namespaces: [{pattern: batch-*, delete_after: 10m}]}
  remediation: {verification: {image: registry.example.com/verify}}
  intake: {auth: {tokensSecret: monitors}, tls: {existingSecret: cert}, grpc: {enabled: true}}
  janitor: {separate: true, rebootProvider: job, terminateProvider: execution, config: {job: {image: registry.example.com/reboot, namespace: `+jobs+`}, execution: {namespace: `+acting+`, terminate: {action: end_node}}}}
`)
	objects, _, err := deploy.Release{Chart: chartDir, Namespace: ns, APIVersions: c.kinds(t), Values: values}.Render()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.withdraw(t, objects) })
	c.wantApplied(t, objects, ns)
}
