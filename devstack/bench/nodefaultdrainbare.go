package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// These are the defaults of the drainer.
	bareEvictionsPerSecond = 100
	bareEvictionBurst      = 50

	bareListEvery = 100 * time.Millisecond
)

// evictWithBareLoops evicts the pods of all nodes of a pool, with one loop for each node, and returns how long it
// took until all pods were gone.
func (b *drainBed) evictWithBareLoops(ctx context.Context, pool string) (took time.Duration, err error) {
	limiter := rate.NewLimiter(bareEvictionsPerSecond, bareEvictionBurst)
	began := time.Now()
	errs := make(chan error, drainNodes)
	for i := range drainNodes {
		go func() { errs <- b.evictPodsOfNode(ctx, formatDrainedNodeName(pool, i), limiter) }()
	}
	for range drainNodes {
		err = errors.Join(err, <-errs)
	}
	return time.Since(began), err
}

// evictPodsOfNode evicts the pods of a node, several at a time, and waits until they are gone.
func (b *drainBed) evictPodsOfNode(ctx context.Context, node string, limiter *rate.Limiter) error {
	onNode := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	pods, err := b.pods.CoreV1().Pods(drainNamespace).List(ctx, onNode)
	if err != nil {
		return err
	}
	err = runForEachInParallel(pods.Items, func(pod corev1.Pod) error {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: drainNamespace, Name: pod.Name}}
		return b.pods.CoreV1().Pods(drainNamespace).EvictV1(ctx, eviction)
	})
	if err != nil {
		return err
	}
	for {
		left, err := b.pods.CoreV1().Pods(drainNamespace).List(ctx, onNode)
		if err != nil || len(left.Items) == 0 {
			return err
		}
		if err := backoff.Sleep(ctx, bareListEvery); err != nil {
			return err
		}
	}
}
