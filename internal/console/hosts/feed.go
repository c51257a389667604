package hosts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

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
	at, ok := h.feed.decodeCursor(subscription.Cursor)
	for {
		var list []change
		var more <-chan struct{}
		if ok {
			list, at, more, ok = h.feed.changesAfter(at)
		}
		if !ok {
			return console.ErrExpired
		}
		for i, c := range list {
			e, err := newStreamEventIfReadable(ctx, h.cfg.Name, h.reviews, subscription, c)
			if err != nil {
				return err
			}
			if e == nil {
				continue
			}
			e.Cursor = h.feed.encodeCursor(at - int64(len(list)-i-1))
			if err := emit(*e); err != nil {
				return err
			}
		}
		if err := emit(console.StreamEvent{Cursor: h.feed.encodeCursor(at)}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-more:
		}
	}
}

// newStreamEventIfReadable returns the event of a change, or nil if the person may not see it or did not ask.
func newStreamEventIfReadable(
	ctx context.Context, host string, reviewer *accessReviewer, subscription console.Subscription, c change,
) (*console.StreamEvent, error) {
	e := &console.StreamEvent{Op: console.OpChanged, Host: host}
	if c.gone {
		e.Op = console.OpRemoved
	}
	var group, resource string
	var item any
	switch o := c.object.(type) {
	case *executionv1.KubernetesExecution:
		e.Topic, group, resource, item = console.TopicExecutions, executionGroup, executionsName, toExecutionSummary(host, o)
	case *faultv1.NodeFault:
		n := toNode(host, o)
		if n.Stage == "" {
			e.Op = console.OpRemoved
		}
		e.Topic, group, resource, item = console.TopicNodes, faultGroup, faultsName, n
	case *sentinelv1.SentinelConfig:
		e.Topic, group, resource, item = console.TopicSentinels, sentinelGroup, sentinelsName, toSentinel(host, o)
	}
	if !subscription.HasTopic(e.Topic) {
		return nil, nil //nolint:nilnil // nothing to tell is no error
	}
	f, err := reviewer.newReadFilter(ctx, subscription.Who, "list", group, resource)
	if errors.Is(err, errNotAccepted) || errors.Is(err, errNoToken) {
		return nil, nil //nolint:nilnil // such a person sees nothing
	}
	if err == nil {
		var ok bool
		if ok, err = f.allowsRead(ctx, c.object.GetNamespace(), ""); err == nil && !ok {
			return nil, nil //nolint:nilnil // nor does this one
		}
	}
	if err != nil {
		return nil, fmt.Errorf("filter the changes of host cluster %q: %w", host, err)
	}
	e.Item = item
	return e, nil
}
