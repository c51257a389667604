package hosts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	executionv1 "github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	faultv1 "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	sentinelv1 "github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// feedSize is the number of changes that a stream can be behind.
const feedSize = 4096

// A changeFeed holds the latest changes of a host cluster. Its positions mean nothing to another process,
// where a stream must list again.
type changeFeed struct {
	epoch string

	mu      sync.Mutex
	first   int64 // position of ring[0]
	ring    []change
	changed chan struct{} // closed at the next change
}

type change struct {
	object client.Object
	gone   bool
}

func newChangeFeed() *changeFeed {
	return &changeFeed{epoch: session.NewRandomID()[:8], changed: make(chan struct{})}
}

// appendChange adds a change. It implements the function of a kube.Handler.
func (f *changeFeed) appendChange(object client.Object, removed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring = append(f.ring, change{object, removed})
	if len(f.ring) > feedSize {
		f.first += int64(len(f.ring) - feedSize/2)
		f.ring = append([]change(nil), f.ring[len(f.ring)-feedSize/2:]...)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// changesAfter returns the changes after a position and the position after them. changed is closed
// at the next change. available is false if the changes are no longer there.
func (f *changeFeed) changesAfter(position int64) (changes []change, nextPosition int64, changed <-chan struct{}, available bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.first + int64(len(f.ring))
	if position < f.first || position > end {
		return nil, end, f.changed, false
	}
	return append([]change(nil), f.ring[position-f.first:]...), end, f.changed, true
}

func (f *changeFeed) encodeCursor(position int64) string {
	return f.epoch + "." + strconv.FormatInt(position, 10)
}

// decodeCursor returns the position of a cursor. An empty cursor is the end.
func (f *changeFeed) decodeCursor(cursor string) (position int64, valid bool) {
	if cursor == "" {
		_, end, _, _ := f.changesAfter(-1)
		return end, true
	}
	epoch, text, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && epoch == f.epoch
}

// ListSources returns the streams of all host clusters: one for each.
func (c *Clusters) ListSources() []console.Source {
	var list []console.Source
	for _, h := range c.list {
		list = append(list, console.Source{
			Name: "host:" + h.cfg.Name, Topics: []string{console.TopicExecutions, console.TopicNodes, console.TopicSentinels},
			Follow: h.followReadableChanges,
		})
	}
	return list
}

// followReadableChanges passes on the changes of the objects that the person may list.
func (h *Host) followReadableChanges(ctx context.Context, subscription console.Subscription, emit func(console.StreamEvent) error) error {
	position, ok := h.feed.decodeCursor(subscription.Cursor)
	if !ok {
		return console.ErrExpired
	}
	for {
		changes, end, changed, ok := h.feed.changesAfter(position)
		if !ok {
			return console.ErrExpired
		}
		for i, c := range changes {
			event, ok, err := h.newEventIfReadable(ctx, subscription, c)
			if err != nil {
				return fmt.Errorf("filter the changes of host cluster %q: %w", h.cfg.Name, err)
			}
			if !ok {
				continue
			}
			event.Cursor = h.feed.encodeCursor(position + int64(i) + 1)
			if err := emit(event); err != nil {
				return err
			}
		}
		if err := emit(console.StreamEvent{Cursor: h.feed.encodeCursor(end)}); err != nil {
			return err
		}
		position = end
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// newEventIfReadable returns the event of a change. ok is false if the person may not see it or did not ask.
func (h *Host) newEventIfReadable(ctx context.Context, s console.Subscription, c change) (event console.StreamEvent, ok bool, err error) {
	event, resource := newStreamEvent(h.cfg.Name, c)
	if !s.HasTopic(event.Topic) {
		return event, false, nil
	}
	ok, err = h.reviews.mayListInNamespace(ctx, s.Who, resource, c.object.GetNamespace())
	return event, ok, err
}

// newStreamEvent returns the event of a change, and the resource that a person must be able to list to see it.
func newStreamEvent(host string, c change) (console.StreamEvent, schema.GroupResource) {
	e := console.StreamEvent{Op: console.OpChanged, Host: host}
	if c.gone {
		e.Op = console.OpRemoved
	}
	var resource schema.GroupResource
	switch o := c.object.(type) {
	case *executionv1.KubernetesExecution:
		e.Topic, e.Item = console.TopicExecutions, toExecutionSummary(host, o)
		resource = schema.GroupResource{Group: executionGroup, Resource: executionsName}
	case *faultv1.NodeFault:
		node := toNode(host, o)
		if node.Stage == "" {
			e.Op = console.OpRemoved
		}
		e.Topic, e.Item = console.TopicNodes, node
		resource = schema.GroupResource{Group: faultGroup, Resource: faultsName}
	case *sentinelv1.SentinelConfig:
		e.Topic, e.Item = console.TopicSentinels, toSentinel(host, o)
		resource = schema.GroupResource{Group: sentinelGroup, Resource: sentinelsName}
	}
	return e, resource
}

// mayListInNamespace reports whether a person may list the objects of a namespace. A person whom the host
// cluster does not know sees nothing.
func (v *accessReviewer) mayListInNamespace(
	ctx context.Context, person console.Person, resource schema.GroupResource, namespace string,
) (allowed bool, err error) {
	f, err := v.newReadFilter(ctx, person, "list", resource.Group, resource.Resource)
	if errors.Is(err, errNotAccepted) || errors.Is(err, errNoToken) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return f.allowsRead(ctx, namespace, "")
}
