package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A finalState is the state of everything at one time.
type finalState []history.Record

// readState reads the state from the API, the garden and the host cluster, without the reports of adapters.
func (t *topology) readState(ctx context.Context) (finalState, error) {
	viewer, err := t.newClient("viewer")
	if err != nil {
		return nil, err
	}
	defer viewer.CloseIdle()
	var state finalState
	for r, err := range viewer.Clusters().List(ctx, fleetclient.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		c := &history.Cluster{ID: r.ID, Name: r.Name, Generation: r.Generation, Deleting: r.DeletedTime != nil, Phase: string(r.Status.Phase), Reported: map[string]int64{}, Created: r.CreatedTime, Updated: r.UpdatedTime}
		for _, o := range r.Status.Conditions {
			c.Conditions = append(c.Conditions, history.Condition{Name: o.Type, Changed: o.LastTransitionTime})
		}
		state = append(state, history.Record{Cluster: c})
	}
	pools, err := readPools(ctx, viewer)
	if err != nil {
		return nil, err
	}
	state = append(state, pools...)
	generations, err := t.database.readWantedSyncGenerations(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range state {
		if c := r.Cluster; c != nil {
			c.SyncGeneration = generations[c.ID]
		}
	}
	shoots, err := t.readShoots(ctx)
	if err != nil {
		return nil, err
	}
	for _, collection := range collections() {
		owned, err := t.readOwnedPerSentinel(ctx, collection)
		if err != nil {
			return nil, err
		}
		for name, count := range owned {
			shoots = append(shoots, history.Record{Sentinel: &history.Sentinel{Name: name, Collection: collection, Owned: count}})
		}
	}
	executions, err := t.readExecutions(ctx)
	return slices.Concat(state, shoots, executions), err
}

// readPools returns the node pools of all clusters.
func readPools(ctx context.Context, viewer *fleetclient.Client) (finalState, error) {
	var state finalState
	for r, err := range viewer.NodePools().List(ctx, fleetclient.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		var spec struct {
			Replicas int `json:"replicas"`
		}
		if err := json.Unmarshal(r.Spec, &spec); err != nil {
			return nil, fmt.Errorf("node pool %q: %w", r.Name, err)
		}
		p := &history.Pool{
			ID:         r.ID,
			Name:       r.Name,
			Generation: r.Generation,
			Deleting:   r.DeletedTime != nil,
			Reported:   map[string]int64{},
			Machines:   spec.Replicas,
		}
		if r.OwnerReferences != nil {
			p.ClusterID = r.OwnerReferences.ID
		}
		state = append(state, history.Record{Pool: p})
	}
	return state, nil
}

// addAdapterStatuses adds the reports of adapters to clusters and node pools, several at a time.
func (t *topology) addAdapterStatuses(ctx context.Context, state finalState) error {
	viewer, err := t.newClient("viewer")
	if err != nil {
		return err
	}
	defer viewer.CloseIdle()
	const atOnce = 8
	errs := make([]error, atOnce)
	var reading sync.WaitGroup
	for part := range atOnce {
		reading.Go(func() {
			for i := part; i < len(state) && errs[part] == nil; i += atOnce {
				errs[part] = addAdapterStatus(ctx, viewer, state[i])
			}
		})
	}
	reading.Wait()
	return errors.Join(errs...)
}

func addAdapterStatus(ctx context.Context, viewer *fleetclient.Client, r history.Record) error {
	c, p := r.Cluster, r.Pool
	switch {
	case p != nil:
		statuses, err := viewer.NodePools().Statuses(ctx, p.ID)
		for _, s := range statuses {
			p.Reported[s.Adapter] = s.ObservedGeneration
		}
		return ignoreDeleted(err)
	case c != nil:
		statuses, err := viewer.Clusters().Statuses(ctx, c.ID)
		for _, s := range statuses {
			c.Reported[s.Adapter] = s.ObservedGeneration
			for _, o := range s.Conditions {
				c.Conditions = append(
					c.Conditions,
					history.Condition{Name: s.Adapter + "/" + o.Type, Changed: o.LastTransitionTime, Updated: s.LastReportTime},
				)
			}
		}
		return ignoreDeleted(err)
	}
	return nil
}

// ignoreDeleted returns no error if a resource was deleted meanwhile.
func ignoreDeleted(err error) error {
	if fleetclient.IsNotFound(err) {
		return nil
	}
	return err
}

func (t *topology) readShoots(ctx context.Context) (finalState, error) {
	client, err := dynamic.NewForConfig(t.garden.Config())
	if err != nil {
		return nil, err
	}
	shoots := client.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"})
	list, err := shoots.Namespace(t.garden.Namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var state finalState
	for i := range list.Items {
		o := &list.Items[i]
		state = append(state, history.Record{Shoot: &history.Shoot{
			Name: o.GetName(), UID: string(o.GetUID()), ClusterID: o.GetLabels()[shoot.LabelCluster], Generation: generationOf(o), Deleting: o.GetDeletionTimestamp() != nil,
			Created: o.GetCreationTimestamp().Time,
			Workers: maxMachinesPerWorkerGroup(o),
		}})
	}
	return state, nil
}

// maxMachinesPerWorkerGroup returns the maximum of machines of each worker group.
func maxMachinesPerWorkerGroup(o *unstructured.Unstructured) map[string]int {
	workers := map[string]int{}
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "provider", "workers") // none are no workers
	for _, item := range list {
		if w, ok := item.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(w, "name")
			workers[name] = int(machinesOf(w["maximum"]))
		}
	}
	return workers
}

func machinesOf(value any) int64 {
	n, _ := value.(int64) // anything else is 0
	return n
}

// generationOf returns the SyncGeneration of the cluster that a Shoot was made from.
func generationOf(o *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(o.GetAnnotations()[shoot.AnnotationGeneration], 10, 64) // none is 0
	return n
}

// waitUntilSettled waits until the checkers that look at the end find nothing wrong, and the outbox is empty, or
// the bound has passed. It returns the last state.
func (t *topology) waitUntilSettled(ctx context.Context, timeout time.Duration, progress func(string)) (finalState, error) {
	var state finalState
	deadline := time.Now().Add(timeout)
	for {
		isLast := time.Now().After(deadline)
		read, open, err := t.readAndCountDifferences(ctx, isLast)
		if err == nil {
			if state = read; open == 0 {
				progress("settled")
				return state, nil
			}
		}
		if ctx.Err() != nil {
			return state, context.Cause(ctx)
		}
		if isLast {
			return state, err
		}
		if err != nil {
			progress("reading the state: " + err.Error())
		} else {
			progress(fmt.Sprintf("%d differences and pending change events remain", open))
		}
		if !pauseFor(ctx, 5*time.Second) {
			return state, context.Cause(ctx)
		}
	}
}

// readAndCountDifferences returns the state, and the number of differences and of change events that were not
// yet delivered. The reports of adapters are a request per resource. So they are read only if nothing else
// differs, or for the last time.
func (t *topology) readAndCountDifferences(ctx context.Context, alwaysAddStatuses bool) (state finalState, differences int, err error) {
	if state, err = t.readState(ctx); err != nil {
		return nil, 0, err
	}
	if differences, err = t.database.countPendingChangeEvents(ctx); err != nil {
		return nil, 0, err
	}
	checkers := []history.Checker{history.CheckConvergence, history.CheckApprovals, history.CheckRollbacks, history.CheckShardsCoverAll}
	if t.restores {
		checkers = append(checkers, history.CheckRestore)
		if err := t.restored.recordOrphansFromLogs(t.processes("cluster-worker")); err != nil {
			return nil, 0, err
		}
	}
	seen := slices.Concat(state, t.restored.listRecords())
	for _, check := range checkers {
		differences += len(check(t.checkerConfig(), seen).Violations)
	}
	nodes := &corev1.NodeList{}
	if err := t.people.admin.List(ctx, nodes); err != nil {
		return nil, 0, err
	}
	for i := range nodes.Items {
		if nodes.Items[i].Spec.Unschedulable {
			differences++
		}
	}
	for _, r := range state {
		if r.Execution != nil {
			differences += r.Execution.Undelivered
		}
	}
	if differences > 0 && !alwaysAddStatuses {
		return state, differences, nil
	}
	if err := t.addAdapterStatuses(ctx, state); err != nil {
		return nil, 0, err
	}
	differences += len(history.CheckWakeUps(t.checkerConfig(), slices.Concat(state, t.restored.listRecords())).Violations)
	return state, differences, nil
}

// An auditEvent holds the fields of an audit event that the checkers need.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject           json.RawMessage `json:"responseObject"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time       `json:"stageTimestamp"`
}

// readWorkerWritesFromAudit returns the writes of the cluster-workers in the audit log of the garden.
func readWorkerWritesFromAudit(path string) ([]history.Record, error) {
	f, err := os.Open(path) //nolint:gosec // our own file
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var list []history.Record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		isDryRun := strings.Contains(e.RequestURI, "dryRun=") // of preflight
		if e.User.Username != workerUser || e.ObjectRef.Subresource != "" || isDryRun {
			continue
		}
		w := &history.Write{
			User: e.User.Username, Verb: e.Verb, Shoot: e.ObjectRef.Name, Status: e.ResponseStatus.Code,
			Start: e.RequestReceivedTimestamp, End: e.StageTimestamp,
		}
		var o unstructured.Unstructured
		if o.UnmarshalJSON(e.ResponseObject) == nil && o.GetKind() == "Shoot" {
			w.UID, w.ClusterID, w.Generation, w.Changed = string(o.GetUID()), o.GetLabels()[shoot.LabelCluster], generationOf(&o), o.GetGeneration()
			w.History = o.GetAnnotations()[shoot.AnnotationHistory]
		}
		list = append(list, history.Record{At: w.End, Write: w})
	}
	return list, lines.Err()
}
