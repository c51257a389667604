package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
)

// Machines simulates the machines of the nodes behind a webhook for the janitor.
type Machines struct {
	// Way, if set, can kill the controller during a request.
	Way *KillingProxy
	// Deaf makes the machines accept each request without an effect.
	Deaf bool

	cluster *Cluster
	server  *httptest.Server

	mu     sync.Mutex
	done   map[string][]types.UID // by action and node: the keys, in the order of their first request
	gone   map[string]bool
	failed bool
}

// StartMachineWebhook starts the webhook. Start the controller with Env.
func (c *Cluster) StartMachineWebhook() *Machines {
	c.Helper()
	m := &Machines{cluster: c, done: map[string][]types.UID{}, gone: map[string]bool{}}
	m.server = httptest.NewServer(m)
	c.Cleanup(m.server.Close)
	return m
}

// Env returns the environment that makes the janitor use the webhook.
func (m *Machines) Env() map[string]string {
	return map[string]string{
		"NODE_FAULT_REBOOT_PROVIDER": "webhook", "NODE_FAULT_TERMINATE_PROVIDER": "webhook",
		"NODE_ACTION_WEBHOOK_URL": m.server.URL + "/do", "NODE_ACTION_WEBHOOK_STATUS_URL": m.server.URL + "/status",
	}
}

// Done returns the keys of the actions that were done to a node, each once.
func (m *Machines) Done(action janitor.Action, node string) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[string(action)+" "+node]
}

// Fail makes the webhook report each request as failed.
func (m *Machines) Fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = true
}

// ServeHTTP accepts a request, or returns its progress.
func (m *Machines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q janitor.WebhookRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/status" {
		_ = json.NewEncoder(w).Encode(janitor.WebhookStatus{State: m.progressState(q)})
		return
	}
	if q.Node == nil {
		http.Error(w, "which node?", http.StatusBadRequest)
		return
	}
	var die func()
	var answered bool
	if m.Way != nil {
		die, answered = m.Way.CountWriteAndCheckKill("the webhook", q.Node.Name, nil)
	}
	if die == nil || answered {
		// A machine continues even if the controller has crashed.
		if err := m.runActionOncePerKey(context.WithoutCancel(r.Context()), q); err != nil {
			m.cluster.Errorf("%s %s: %v", q.Action, q.Node.Name, err)
		}
	}
	if die != nil {
		die()
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(janitor.WebhookAnswer{RequestID: "machine-of-" + q.Node.Name})
}

func (m *Machines) progressState(q janitor.WebhookRequest) janitor.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.failed:
		return janitor.StateFailed
	case m.gone[q.RequestID]:
		return janitor.StateDone
	}
	return janitor.StateRunning
}

// runActionOncePerKey executes a request, once per key.
func (m *Machines) runActionOncePerKey(ctx context.Context, q janitor.WebhookRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	what := string(q.Action) + " " + q.Node.Name
	if slices.Contains(m.done[what], q.IdempotencyKey) {
		return nil
	}
	m.done[what] = append(m.done[what], q.IdempotencyKey)
	if m.Deaf {
		return nil
	}
	if q.Action == janitor.ActionTerminate {
		m.gone["machine-of-"+q.Node.Name] = true
		return nil
	}
	return m.cluster.setBootIDAndReady(ctx, q.Node.Name, fmt.Sprintf("boot-%d-%s", 1+len(m.done[what]), q.IdempotencyKey))
}

// setBootIDAndReady gives a node another boot ID and makes it Ready.
func (c *Cluster) setBootIDAndReady(ctx context.Context, name, bootID string) error {
	for {
		var n corev1.Node
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
			return err
		}
		n.Status.NodeInfo.BootID = bootID
		now := metav1.Now()
		others := slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		n.Status.Conditions = append(
			others,
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
		)
		if err := c.Client.Status().Update(ctx, &n); !apierrors.IsConflict(err) {
			return err
		}
	}
}
