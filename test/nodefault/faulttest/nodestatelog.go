package faulttest

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A NodeStateLog records each change of the nodes.
type NodeStateLog struct {
	mu    sync.Mutex
	lines map[types.UID][]string
	most  int
}

// StartNodeStateLog starts to record the changes until the test ends.
func (c *Cluster) StartNodeStateLog() *NodeStateLog {
	c.Helper()
	b := &NodeStateLog{lines: map[types.UID][]string{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	written, err := c.Client.Watch(ctx, &corev1.NodeList{})
	if err != nil {
		cancel()
		c.Fatal(err)
	}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for e := range written.ResultChan() {
			if n, is := e.Object.(*corev1.Node); is {
				b.recordNodeState(n, e.Type == watch.Deleted)
			}
		}
	})
	c.Cleanup(func() {
		written.Stop()
		cancel()
		keeping.Wait()
	})
	return b
}

func (b *NodeStateLog) recordNodeState(n *corev1.Node, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := open
	switch {
	case deleted:
		is = "gone"
	case n.Spec.Unschedulable:
		is = cordoned
	}
	if lines := b.lines[n.UID]; len(lines) == 0 || lines[len(lines)-1] != is {
		b.lines[n.UID] = append(lines, is)
	}
	out := 0
	for _, lines := range b.lines {
		if lines[len(lines)-1] == cordoned {
			out++
		}
	}
	b.most = max(b.most, out)
}

// States of a node.
const (
	open     = "open"
	cordoned = "cordoned"
)

// Most returns how many nodes were cordoned at the same time.
func (b *NodeStateLog) Most() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// Of returns the states of a node in order: open, cordoned and gone.
func (b *NodeStateLog) Of(n *corev1.Node) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[n.UID], " ")
}
