package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

const (
	faultReplicas = 2
	reportToken   = "the-token-of-reports"

	// budgetPercent is the default budget.
	budgetPercent = 10
	machinePrefix = "machine-"

	// repairPeriod replaces five minutes, the default of both the time for which a node must be healthy
	// before its release and the window of the rate limit. In five minutes one node would be cordoned.
	repairPeriod = "10s"

	// reportBound is the patience of a monitor.
	reportBound = time.Minute
)

// hostControllers are the controllers of the host cluster. The nodes have no machines that renew their
// Leases, so no controller may take them for dead.
func hostControllers() []string {
	return slices.DeleteFunc(kubebed.JobControllers(), func(name string) bool {
		return name == "node-lifecycle-controller" || name == "taint-eviction-controller"
	})
}

// machines returns the number of nodes without machines of a plan.
func (p plan) machines() int { return max(20, p.clusters/20) }

// startNodeFaults starts the controllers behind a Service.
func (t *topology) startNodeFaults(ctx context.Context) error {
	tokens := filepath.Join(t.dir, "report-tokens.yaml")
	if err := os.WriteFile(tokens, []byte("tokens:\n- {token: "+reportToken+", subject: monitor}\n"), 0o600); err != nil {
		return err
	}
	kubeconfig, err := t.kube.WriteUserKubeconfig(
		"system:serviceaccount:"+nodefault.DefaultNamespace+":"+nodefault.DefaultAccount,
		"system:serviceaccounts",
		"system:serviceaccounts:"+nodefault.DefaultNamespace,
		"system:authenticated",
	)
	if err != nil {
		return err
	}
	var backends []*faults.Backend
	var failed error
	err = t.startReplicas(ctx, "node-fault-controller", faultReplicas, func(p *process, _ string) {
		listen, err := t.newFreeAddress(ctx)
		if err != nil {
			failed = err
		}
		p.args = []string{
			"--kubeconfig=" + kubeconfig,
			"--namespace=" + nodefault.DefaultNamespace,
			"--listen-address=" + listen,
			"--intake-auth-mode=file",
			"--intake-token-file=" + tokens,
		}
		p.env["NODE_FAULT_HEALTHY_FOR"], p.env["NODE_FAULT_BUDGET_WINDOW"] = repairPeriod, repairPeriod
		maps.Copy(p.env, t.sink.env())
		backends = append(backends, &faults.Backend{Addr: listen, Probe: p.checkReady})
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if t.intake, err = faults.NewProxy(ctx, "node-fault-intake", backends...); err != nil {
		return err
	}
	t.proxies = append(t.proxies, t.intake)
	return nil
}

// createFakeNodes creates nodes on which no Job can run.
func (t *topology) createFakeNodes(ctx context.Context, count int) error {
	for i := range count {
		name := fmt.Sprintf("%s%d", machinePrefix, i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Spec: corev1.NodeSpec{
				ProviderID: "proof:///" + name,
				Taints:     []corev1.Taint{{Key: "proof", Effect: corev1.TaintEffectNoSchedule}},
			},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now()},
				},
				NodeInfo: corev1.NodeSystemInfo{BootID: name},
			},
		}
		if err := t.people.admin.Create(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// recordNodeCordons records when nodes are cordoned and uncordoned, until ctx ends.
func (t *topology) recordNodeCordons(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(t.kube.Config())
	if err != nil {
		return err
	}
	cordoned := map[string]bool{}
	for ctx.Err() == nil {
		changes, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		if err != nil {
			pauseFor(ctx, time.Second)
			continue
		}
		for e := range changes.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || e.Type == watch.Deleted || n.Spec.Unschedulable == cordoned[n.Name] {
				continue
			}
			cordoned[n.Name] = n.Spec.Unschedulable
			t.file.Add(history.Record{Node: &history.Node{Name: n.Name, Cordoned: n.Spec.Unschedulable}})
		}
		changes.Stop()
	}
	return nil
}

// reportNodeFaultsAndRecoveries lets nodes fail and recover. Every node recovers in the end.
func (t *topology) reportNodeFaultsAndRecoveries(ctx context.Context, p plan) {
	dice := rand.New(rand.NewPCG(p.seed, 4)) //nolint:gosec // a schedule, not a secret
	var running sync.WaitGroup
	defer running.Wait()
	count := p.machines()
	shortest, end := p.duration/20, time.Now().Add(p.duration)
	for i := range count {
		lasts := shortest + time.Duration(dice.Int64N(int64(p.duration/3-shortest)))
		lasts = min(lasts, max(shortest, time.Until(end))) // the run should not wait for the last nodes
		running.Go(func() {
			name := fmt.Sprintf("%s%d", machinePrefix, i)
			t.reportNodeUntilAcknowledged(ctx, name, false)
			pauseFor(ctx, lasts)
			t.reportNodeUntilAcknowledged(ctx, name, true)
		})
		if !pauseFor(ctx, p.duration/time.Duration(count)) {
			return
		}
	}
}

// reportNodeUntilAcknowledged reports a fault or its end, again until it is acknowledged, and records the outcome.
func (t *topology) reportNodeUntilAcknowledged(ctx context.Context, node string, healthy bool) {
	ctx, cancel := context.WithTimeout(ctx, reportBound)
	defer cancel()
	r := &history.NodeReport{Node: node, Healthy: healthy}
	generated := time.Now()
	for {
		err := t.postReport(ctx, node, healthy, generated)
		if r.Acknowledged = err == nil; err == nil || !pauseFor(ctx, time.Second) {
			if err != nil {
				r.Error = err.Error()
			}
			break
		}
	}
	t.file.Add(history.Record{NodeReport: r})
}

func (t *topology) postReport(ctx context.Context, node string, healthy bool, generated time.Time) error {
	body, err := json.Marshal([]map[string]any{{
		"nodeName": node, "agent": "gpu-health-monitor", "componentClass": "GPU", "checkName": "GpuXidError", "isFatal": !healthy, "isHealthy": healthy,
		"errorCode": []string{"79"}, "message": "the GPU has fallen off the bus", "recommendedAction": "NONE",
		"entitiesImpacted": []map[string]string{
			{"entityType": "GPU", "entityValue": "0"},
		}, "generatedTimestamp": generated.Format(time.RFC3339Nano),
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.intake.Addr()+intake.PathHealthEvents, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+reportToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(resp.Body) // the status says enough
		return fmt.Errorf("report: %s: %s", resp.Status, text)
	}
	return nil
}
