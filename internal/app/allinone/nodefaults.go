package allinone

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/nodefaultapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// processNode is the name of the node of the embedded host cluster.
const processNode = "process"

// soonHealthy is how long the node must be without faults before it returns to service. It is
// short, so that a user need not wait for minutes.
const soonHealthy = 10 * time.Second

// setUpNodeFaults builds the controller that takes the node out of service after a reported fault
// and returns it afterwards.
func (h *hostCluster) setUpNodeFaults(ctx context.Context, p *process.Process, sinks *changes.Sinks) ([]lifecycle.Part, error) {
	cfg := nodefaultapp.OverriddenDefaults().Part
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return nil, err
	}
	cfg.Namespace = nodefault.DefaultNamespace
	cfg.Cluster = localCluster
	cfg.Elect = false
	cfg.Quarantine.HealthyFor = soonHealthy
	cfg.Intake.Server.Addr = "127.0.0.1:0"
	cfg.Intake.Auth.Mode = intake.AuthModeNone

	// The account of the controller, with the rights that it has in production.
	if err := h.createIfMissing(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cfg.Namespace}}); err != nil {
		return nil, err
	}
	account := nodefault.DefaultProcessRoles()
	account.Account = nodefault.DefaultAccount
	for _, o := range account.ServiceAccountAndRoles() {
		object, ok := o.(client.Object)
		if !ok {
			return nil, fmt.Errorf("install node faults: %T is not an object", o)
		}
		if err := h.createIfMissing(ctx, object); err != nil {
			return nil, err
		}
	}
	host, err := h.serviceAccountConfig(cfg.Namespace, account.Account)
	if err != nil {
		return nil, err
	}
	host.QPS = float32(cfg.Kube.QPS)
	host.Burst = cfg.Kube.Burst
	return nodefaultapp.BuildParts(ctx, p, cfg, nodefaultapp.Overrides{
		Host:  host,
		Sinks: sinks,
		// The listen address has any free port, which is known only later.
		Listening: func(addr string) { h.reports = "http://" + addr + "/v1/health-events" },
	})
}

// faultExampleCommands returns example commands for node faults. reportsURL is the address for reports, and
// kubeconfigFlag the command prefix of an administrator.
func faultExampleCommands(reportsURL, kubeconfigFlag string) []string {
	report := func(fields string) string {
		event := fmt.Sprintf(`{"agent": "me", "checkName": "fan", "nodeName": %q, %s}`, processNode, fields)
		return fmt.Sprintf(`curl -d '%s' -H 'Content-Type: application/json' %s`, event, reportsURL)
	}
	return []string{
		report(`"isFatal": true, "errorCode": "FAN-1"`),
		"fleetloop faults get" + kubeconfigFlag,
		report(`"isHealthy": true`),
		"fleetloop changes --node " + processNode,
	}
}
