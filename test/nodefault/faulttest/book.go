package faulttest

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Book has what became of the nodes, each write of them.
type Book struct {
	mu    sync.Mutex
	lines map[types.UID][]string
}

// Book is kept from now on until the test ends.
func (c *Cluster) Book() *Book {
	c.Helper()
	b := &Book{lines: map[types.UID][]string{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	watch, err := c.Client.Watch(ctx, &corev1.NodeList{})
	if err != nil {
		cancel()
		c.Fatal(err)
	}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for e := range watch.ResultChan() {
			if n, is := e.Object.(*corev1.Node); is {
				b.note(n)
			}
		}
	})
	c.Cleanup(func() {
		watch.Stop()
		cancel()
		keeping.Wait()
	})
	return b
}

func (b *Book) note(n *corev1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := "open"
	if n.Spec.Unschedulable {
		is = "cordoned"
	}
	lines := b.lines[n.UID]
	if len(lines) == 0 || lines[len(lines)-1] != is {
		b.lines[n.UID] = append(lines, is)
	}
}

// Of is what became of a node: open and cordoned, in turn.
func (b *Book) Of(n *corev1.Node) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[n.UID], " ")
}
