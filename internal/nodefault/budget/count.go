package budget

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A poolCounts holds the numbers of nodes of a pool.
type poolCounts struct {
	members int

	// Nodes out of service, each once: quarantined by the pipeline, cordoned by others, not ready.
	ours, cordoned, notReady int

	recent    int // taken out of service within the window
	candidate int // 1 if the requested node is among the nodes out of service
}

func (c poolCounts) outOfService() int { return c.ours + c.cordoned + c.notReady }

// outOfServiceExceptCandidate returns how many nodes other than the requested one are out of service.
func (c poolCounts) outOfServiceExceptCandidate() int { return c.outOfService() - c.candidate }

// String returns the numbers of nodes out of service, as at the start of a denial.
func (c poolCounts) String() string {
	var parts []string
	if c.ours > 0 {
		parts = append(parts, fmt.Sprintf("%d quarantined", c.ours))
	}
	if c.cordoned > 0 {
		parts = append(parts, fmt.Sprintf("%d cordoned by others", c.cordoned))
	}
	if c.notReady > 0 {
		parts = append(parts, fmt.Sprintf("%d not ready", c.notReady))
	}
	text := fmt.Sprintf("%d of %d nodes are out of service", c.outOfService(), c.members)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// countPoolsAndUpdateState counts the nodes by pool. For the requested node it uses candidate,
// which is at least as recent as the cache. candidate may be nil.
func (b *Budget) countPoolsAndUpdateState(candidate *corev1.Node, now time.Time) map[string]poolCounts {
	counts := map[string]poolCounts{}
	b.countNumber++

	// Count the nodes by their state.
	for _, node := range b.nodes() {
		if candidate != nil && node.UID == candidate.UID {
			continue
		}
		b.addNodeToCountsAndUpdateGrant(counts, node, now, false)
	}
	if candidate != nil {
		b.addNodeToCountsAndUpdateGrant(counts, candidate, now, true)
	}

	// Update what is remembered about the nodes.
	b.members = make(map[string]int, len(counts))
	for pool, c := range counts {
		b.members[pool] = c.members
	}
	b.forgetDeletedAndExpired(now)

	// Count the nodes that were taken out of service within the window, and may be back in service.
	for uid, taken := range b.takings {
		if candidate != nil && uid == candidate.UID {
			continue
		}
		if c, counted := counts[taken.pool]; counted {
			c.recent++
			counts[taken.pool] = c
		}
	}
	return counts
}

// addNodeToCountsAndUpdateGrant adds a node to the counts of its pool.
func (b *Budget) addNodeToCountsAndUpdateGrant(
	counts map[string]poolCounts, node *corev1.Node, now time.Time, isCandidate bool,
) {
	s := b.getOrRefreshNodeState(node)
	if !s.covered {
		return
	}
	c := counts[s.pool]
	c.members++
	before := c.outOfService()
	granted := b.updateTakingAndGrant(s, now)
	switch {
	case granted || s.quarantined:
		c.ours++
	case node.Spec.Unschedulable:
		c.cordoned++
	case !s.ready:
		c.notReady++
	}
	if isCandidate {
		c.candidate = c.outOfService() - before
	}
	counts[s.pool] = c
}

// A nodeState holds what a count needs of a node. Each request counts all nodes, and the objects of a cache do not
// change. So it is kept until the cache returns another object for the node.
type nodeState struct {
	node        *corev1.Node
	covered     bool // by the budget
	pool        string
	quarantined bool // by the pipeline
	ready       bool

	takenAt    time.Time // when the pipeline last took it out of service
	takenKnown bool

	lastCount uint64 // number of the last count that included the node
}

// getOrRefreshNodeState returns the state of a node, and records that the node exists.
func (b *Budget) getOrRefreshNodeState(node *corev1.Node) *nodeState {
	s := b.states[node.UID]
	if s == nil || s.node != node {
		s = &nodeState{
			node:        node,
			covered:     b.coversNode(node),
			pool:        b.poolLabelValue(node),
			quarantined: isQuarantinedByUs(node),
			ready:       isReadyOrNoCondition(node),
		}
		s.takenAt, s.takenKnown = readTakenAt(node)
		b.states[node.UID] = s
	}
	s.lastCount = b.countNumber
	return s
}

// wasCounted reports whether the last count included a node.
func (b *Budget) wasCounted(uid types.UID) bool {
	s := b.states[uid]
	return s != nil && s.lastCount == b.countNumber
}

// updateTakingAndGrant records the state of a node, and reports whether it is granted and does not
// show the cordon yet.
func (b *Budget) updateTakingAndGrant(s *nodeState, now time.Time) (grantPending bool) {
	// Remember when the node was taken out of service, if that was within the window.
	uid := s.node.UID
	if s.takenKnown && now.Sub(s.takenAt) < b.cfg.Window {
		if last, remembered := b.takings[uid]; !remembered || s.takenAt.After(last.at) {
			b.takings[uid] = taking{pool: s.pool, at: s.takenAt}
		}
	}

	// End a grant that the node shows, or that it will not show any more.
	granted, pending := b.grants[uid]
	if !pending {
		return false
	}
	// The annotation has the time of the grant in microseconds. An older one belongs to a
	// previous session.
	observed := s.takenKnown && !s.takenAt.Before(granted.at.Truncate(time.Microsecond))
	expired := now.Sub(granted.at) > grantTimeout
	if observed || expired || isReleasedAfterGrant(s.node, granted) {
		delete(b.grants, uid)
		return false
	}
	return true
}

// isReleasedAfterGrant reports whether a granted node is in service again without having been
// observed out of service. It was released, or a person uncordoned it, since the grant.
func isReleasedAfterGrant(node *corev1.Node, granted grant) bool {
	for _, key := range []string{v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		text, exists := node.Annotations[key]
		if !exists {
			continue
		}
		var ended struct {
			Since time.Time `json:"since"` // time of the quarantine, in annotations that have it
			At    time.Time `json:"at"`
		}
		if err := json.Unmarshal([]byte(text), &ended); err != nil {
			continue
		}
		if ended.Since.IsZero() {
			if ended.At.After(granted.at) {
				return true
			}
		} else if !ended.Since.Before(granted.at.Truncate(time.Microsecond)) {
			return true
		}
	}
	return false
}

// forgetDeletedAndExpired drops the state of deleted nodes, expired grants, and takings before the
// window.
func (b *Budget) forgetDeletedAndExpired(now time.Time) {
	maps.DeleteFunc(b.grants, func(uid types.UID, g grant) bool {
		return !b.wasCounted(uid) || now.Sub(g.at) > grantTimeout
	})
	maps.DeleteFunc(b.states, func(uid types.UID, _ *nodeState) bool { return !b.wasCounted(uid) })
	maps.DeleteFunc(b.takings, func(_ types.UID, t taking) bool { return now.Sub(t.at) >= b.cfg.Window })
}

// readTakenAt returns when the pipeline last took a node out of service. It reads the annotation of a quarantined
// node, or the one that stays on a node that was released or overridden by a person.
func readTakenAt(node *corev1.Node) (at time.Time, known bool) {
	for _, key := range []string{v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		text, exists := node.Annotations[key]
		if !exists {
			continue
		}
		var annotation struct {
			AppliedAt time.Time `json:"appliedAt"` // in AnnotationOwned
			Since     time.Time `json:"since"`     // in the other annotations
		}
		err := json.Unmarshal([]byte(text), &annotation)
		at = annotation.Since
		if key == v1alpha1.AnnotationOwned {
			at = annotation.AppliedAt
		}
		return at, err == nil && !at.IsZero()
	}
	return time.Time{}, false
}

// isQuarantinedByUs reports whether the pipeline has quarantined a node.
func isQuarantinedByUs(node *corev1.Node) bool {
	_, owned := node.Annotations[v1alpha1.AnnotationOwned]
	return owned
}

// isReadyOrNoCondition reports whether a node is ready. A node without the condition counts as ready.
func isReadyOrNoCondition(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}

// coversNode reports whether the budget covers a node.
func (b *Budget) coversNode(node *corev1.Node) bool {
	if !b.cfg.ControlPlane {
		for _, role := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
			if _, hasRole := node.Labels[role]; hasRole {
				return false
			}
		}
	}
	return b.selected.Matches(selector.Map(node.Labels))
}

func (b *Budget) poolLabelValue(node *corev1.Node) string {
	if b.cfg.Pool == "" {
		return ""
	}
	return node.Labels[b.cfg.Pool]
}

func sortedPoolNames(counts map[string]poolCounts) []string { return slices.Sorted(maps.Keys(counts)) }
