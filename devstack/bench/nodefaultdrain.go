package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
)

const (
	drainNodes     = 10 // per pool
	drainPods      = 60 // per node, one of each app
	drainPatience  = 5 * time.Minute
	drainNamespace = metav1.NamespaceDefault // of the pods and their budgets
	drainedPool    = "drained"               // its nodes are drained by the drainer
)

// drainBench compares the drain of ten nodes at once with bare loops that evict as many pods. The default
// drainer sends at most a hundred evictions per second, and so do the loops. Each pod has a disruption budget
// that allows its eviction, and ends at once. The status of each NodeFault is written after each step, as the
// operator does. The drain lasts from the first step until the last node is drained, and a loop until it has
// read that its pods are gone. Half of the loops run before the drain, and half of them after it.
func drainBench() bench {
	const name = "nodefault.evictions_vs_bare"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, drainPatience)
		defer cancel()
		kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
		bed, err := kubebed.Start(ctx, kubebed.Options{Controllers: []string{"disruption-controller"}})
		if err != nil {
			return nil, err
		}
		took, bare, err := measureDrain(ctx, bed)
		if err = errors.Join(err, bed.Stop()); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "%d pods of %d nodes evicted within %.2f s, by bare loops within %.2f s\n",
			drainNodes*drainPods, drainNodes, took.Seconds(), bare.Seconds())
		return []line{{kind: "ratio", name: name, value: bare.Seconds() / took.Seconds(), op: ">=", want: 0.8}}, nil
	}}
}

// A drainBed is a cluster with nodes to drain.
type drainBed struct {
	pods   kubernetes.Interface
	faults client.Client
	nodes  []*v1alpha1.NodeFault // one per node
}

// measureDrain returns the duration of the drain, and the mean duration of the bare loops before and after it.
func measureDrain(ctx context.Context, bed *kubebed.Bed) (took, bare time.Duration, err error) {
	b, err := fillDrainBed(ctx, bed)
	if err != nil {
		return 0, 0, err
	}
	before, err := b.evictWithBareLoops(ctx, "before")
	if err != nil {
		return 0, 0, err
	}
	took, err = b.drainAllNodes(ctx)
	if err != nil {
		return 0, 0, err
	}
	after, err := b.evictWithBareLoops(ctx, "after")
	return took, (before + after) / 2, err
}

func (b *drainBed) drainAllNodes(ctx context.Context) (took time.Duration, err error) {
	d := drain.New(drain.Config{}, b.pods, nil)
	began := time.Now()
	errs := make(chan error, len(b.nodes))
	for _, n := range b.nodes {
		go func() { errs <- b.drainNode(ctx, d, n) }()
	}
	for range b.nodes {
		err = errors.Join(err, <-errs)
	}
	took = time.Since(began)
	if err != nil {
		return 0, err
	}
	evicted := 0
	for _, n := range b.nodes {
		evicted += int(n.Status.Drain.Evicted)
	}
	if evicted != drainNodes*drainPods {
		return 0, fmt.Errorf("%d pods were evicted, there were %d", evicted, drainNodes*drainPods)
	}
	return took, nil
}

// drainNode runs the drain steps of one node until it is drained.
func (b *drainBed) drainNode(ctx context.Context, d *drain.Drainer, fault *v1alpha1.NodeFault) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fault.Name, UID: fault.Status.NodeUID}}
	for {
		after, err := d.Step(ctx, node, &fault.Status, time.Now())
		if err != nil {
			return err
		}
		if err := b.faults.Status().Update(ctx, fault); err != nil {
			return err
		}
		if after == drain.Never {
			break
		}
		if err := backoff.Sleep(ctx, after); err != nil {
			return err
		}
	}
	if state := fault.Status.Drain.State; state != v1alpha1.DrainCompleted {
		return fmt.Errorf("the drain of %q ended %s: %s", fault.Name, state, fault.Status.Drain.Message)
	}
	return nil
}

// fillDrainBed creates the pods, their budgets, and the NodeFaults.
func fillDrainBed(ctx context.Context, bed *kubebed.Bed) (b *drainBed, err error) {
	cfg := bed.Config()
	cfg.QPS = -1 // the drainer limits its rate itself
	b = &drainBed{}
	if b.pods, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if err := bed.InstallCRDText(ctx, deploy.NodeFaultCRD); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if b.faults, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // without it no Pod is admitted
	if _, err := b.pods.CoreV1().ServiceAccounts(drainNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for _, pool := range []string{drainedPool, "before", "after"} {
		if err := b.deployPodsOfPool(ctx, pool); err != nil {
			return nil, err
		}
	}
	for i := range drainNodes {
		fault := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: formatDrainedNodeName(drainedPool, i)}}
		if err := b.faults.Create(ctx, fault); err != nil {
			return nil, err
		}
		fault.Status = v1alpha1.NodeFaultStatus{
			NodeUID:        types.UID("uid-" + fault.Name),
			Session:        "bench",
			DesiredActions: &v1alpha1.DesiredActions{Drain: true},
		}
		b.nodes = append(b.nodes, fault)
	}
	return b, b.awaitBudgets(ctx)
}

func formatDrainedNodeName(pool string, i int) string { return fmt.Sprintf("%s-%02d", pool, i) }

// deployPodsOfPool creates the pods of all nodes of a pool, and their budgets.
func (b *drainBed) deployPodsOfPool(ctx context.Context, pool string) error {
	var apps []string
	for i := range drainPods {
		apps = append(apps, fmt.Sprintf("app-%02d-%s", i, pool))
	}
	return runForEachInParallel(apps, func(app string) error { return b.deployApp(ctx, pool, app) })
}

// deployApp creates the budget of an app, and one of its pods on each node of a pool.
func (b *drainBed) deployApp(ctx context.Context, pool, app string) error {
	if err := b.createBudget(ctx, app); err != nil {
		return err
	}
	for i := range drainNodes {
		if err := b.createReadyPod(ctx, app, formatDrainedNodeName(pool, i)); err != nil {
			return err
		}
	}
	return nil
}

// createBudget creates a disruption budget that allows all evictions of an app.
func (b *drainBed) createBudget(ctx context.Context, app string) error {
	minAvailable := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &minAvailable,
			Selector:     &metav1.LabelSelector{MatchLabels: drainedAppLabels(app)},
		},
	}
	_, err := b.pods.PolicyV1().PodDisruptionBudgets(drainNamespace).Create(ctx, budget, metav1.CreateOptions{})
	return err
}

// createReadyPod creates a ready pod on a node. No kubelet runs it, and its grace period is zero, so
// it is gone as soon as it is evicted. Its owner is a controller, because the drainer evicts no
// others.
func (b *drainBed) createReadyPod(ctx context.Context, app, node string) error {
	isController, gracePeriodSeconds := true, int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   app + "-" + node,
			Labels: drainedAppLabels(app),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1",
				Kind:       "ReplicaSet",
				Name:       app,
				UID:        types.UID(app),
				Controller: &isController,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: &gracePeriodSeconds,
			Containers:                    []corev1.Container{{Name: "main", Image: "localhost/web:1"}},
		},
	}
	pod, err := b.pods.CoreV1().Pods(drainNamespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = b.pods.CoreV1().Pods(drainNamespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func drainedAppLabels(app string) map[string]string { return map[string]string{"app": app} }

// awaitBudgets waits until all budgets have counted their pods.
func (b *drainBed) awaitBudgets(ctx context.Context) error {
	const every = 100 * time.Millisecond
	for {
		list, err := b.pods.PolicyV1().PodDisruptionBudgets(drainNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		open := 0
		for i := range list.Items {
			if list.Items[i].Status.DisruptionsAllowed == drainNodes {
				open++
			}
		}
		if open == len(list.Items) {
			return nil
		}
		if err := backoff.Sleep(ctx, every); err != nil {
			return fmt.Errorf("%d of %d budgets have counted their pods: %w", open, len(list.Items), err)
		}
	}
}
