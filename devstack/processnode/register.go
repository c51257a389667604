package processnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	leaseSeconds  = 40 // same as the kubelet's
	registerRetry = 500 * time.Millisecond
)

// keepAlive renews the Node and its Lease until ctx ends.
func (n *Node) keepAlive(ctx context.Context) {
	for ctx.Err() == nil {
		pause := n.o.Heartbeat
		err := errors.Join(n.ensureNodeReady(ctx), n.renewOrCreateLease(ctx))
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "renew node lease failed, retrying", "err", err)
			pause = min(pause, registerRetry)
		}
		n.setReady(err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// ensureNodeReady creates the Node if it is missing, and sets it ready if it is not.
func (n *Node) ensureNodeReady(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.o.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, n.newNodeWithoutStatus(), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("register node %q: %w", n.o.NodeName, err)
	}
	if !isNodeReady(node) || node.Status.DaemonEndpoints.KubeletEndpoint.Port != n.logs.listenPort() {
		node = node.DeepCopy()
		n.fillStatus(node)
		if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set node %q ready: %w", n.o.NodeName, err)
		}
	}
	// Every new Node has this taint until a controller, which may not run here, detects
	// that it is ready.
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	if len(taints) == len(node.Spec.Taints) {
		return nil
	}
	node = node.DeepCopy()
	node.Spec.Taints = taints
	if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("make node %q schedulable: %w", n.o.NodeName, err)
	}
	return nil
}

func (n *Node) newNodeWithoutStatus() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   n.o.NodeName,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(labels, n.o.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.o.NodeName, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.o.Taints},
	}
}

func isNodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *Node) fillStatus(node *corev1.Node) {
	now := metav1.Now()
	s := &node.Status
	s.Capacity, s.Allocatable = n.o.Capacity, n.o.Capacity
	// An address without a name, as API servers try names first.
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	s.DaemonEndpoints.KubeletEndpoint.Port = n.logs.listenPort()
	s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	s.NodeInfo.OSImage = "processes of " + runtime.GOOS
	s.NodeInfo.ContainerRuntimeVersion = containerScheme + runtime.Version()
	if v, err := n.client.Discovery().ServerVersion(); err == nil {
		s.NodeInfo.KubeletVersion = v.GitVersion // the supported API version
	}
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "process node ready"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
	}
}

func (n *Node) renewOrCreateLease(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	name, now, seconds := n.o.NodeName, metav1.NowMicro(), int32(leaseSeconds)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	} else if err == nil {
		lease = lease.DeepCopy()
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease of node %q: %w", name, err)
	}
	return nil
}
