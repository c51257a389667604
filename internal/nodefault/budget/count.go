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
	members                  int
	ours, cordoned, notReady int // out of service, each node once
	recent                   int // taken out of service within the window
	itself                   int // 1 if the requested node is among the nodes out of service
}

func (c poolCounts) outOfService() int { return c.ours + c.cordoned + c.notReady }

// outOfServiceExceptCandidate returns how many nodes other than the requested one are out of service.
func (c poolCounts) outOfServiceExceptCandidate() int { return c.outOfService() - c.itself }

// String returns the numbers of nodes out of service, as at the start of a denial.
func (c poolCounts) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.ours, "quarantined"}, {c.cordoned, "cordoned by others"}, {c.notReady, "not ready"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	split := ""
	if len(parts) > 0 {
		split = " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%d of %d nodes are out of service%s", c.outOfService(), c.members, split)
}

// countPoolsAndUpdateState counts the nodes by pool. For the requested node it uses candidate, which is at
// least as recent as the cache. candidate may be nil.
func (b *Budget) countPoolsAndUpdateState(candidate *corev1.Node, now time.Time) map[string]poolCounts {
	counts := map[string]poolCounts{}
	b.looks++
	for _, node := range b.nodes() {
		if candidate != nil && node.UID == candidate.UID {
			continue
		}
		b.addNodeToPoolCounts(counts, node, now, false)
	}
	if candidate != nil {
		b.addNodeToPoolCounts(counts, candidate, now, true)
	}
	b.members = make(map[string]int, len(counts))
	for pool, c := range counts {
		b.members[pool] = c.members
	}
	b.forgetDeletedAndExpired(now)
	for uid, t := range b.takings {
		if candidate != nil && uid == candidate.UID {
			continue
		}
		if c, is := counts[t.pool]; is {
			c.recent++
			counts[t.pool] = c
		}
	}
	return counts
}

// addNodeToPoolCounts adds a node to the counts of its pool.
func (b *Budget) addNodeToPoolCounts(counts map[string]poolCounts, node *corev1.Node, now time.Time, isCandidate bool) {
	b.markNodeSeen(node.UID)
	if !b.coversNode(node) {
		return
	}
	pool := b.poolLabelValue(node)
	c := counts[pool]
	c.members++
	before := c.outOfService()
	granted := b.updateTakingAndGrant(node, now)
	switch {
	case granted || isQuarantinedByUs(node):
		c.ours++
	case node.Spec.Unschedulable:
		c.cordoned++
	case !isReadyOrNoCondition(node):
		c.notReady++
	}
	if isCandidate {
		c.itself = c.outOfService() - before
	}
	counts[pool] = c
}

// markNodeSeen records that a node exists, so that its remembered state is kept.
func (b *Budget) markNodeSeen(uid types.UID) {
	if g, is := b.grants[uid]; is {
		g.look = b.looks
		b.grants[uid] = g
	}
	if s, is := b.read[uid]; is {
		s.look = b.looks
		b.read[uid] = s
	}
}

// updateTakingAndGrant records the state of a node, and reports whether it is granted and does not
// show the cordon yet.
func (b *Budget) updateTakingAndGrant(node *corev1.Node, now time.Time) (grantPending bool) {
	taken, known := b.takenOutOfServiceAt(node)
	if last, is := b.takings[node.UID]; known && now.Sub(taken) < b.cfg.Window && (!is || taken.After(last.at)) {
		b.takings[node.UID] = taking{pool: b.poolLabelValue(node), at: taken}
	}
	g, grantPending := b.grants[node.UID]
	if !grantPending {
		return false
	}
	// The annotation has the time of the grant in microseconds. An older one belongs to a
	// previous session.
	if known && !taken.Before(g.at.Truncate(time.Microsecond)) || isReleasedAfterGrant(node, g) || now.Sub(g.at) > patience {
		delete(b.grants, node.UID)
		return false
	}
	return true
}

// isReleasedAfterGrant reports whether a granted node is in service again without having been
// observed out of service. It was released, or a person uncordoned it, since the grant.
func isReleasedAfterGrant(node *corev1.Node, g grant) bool {
	for _, key := range []string{v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		text, is := node.Annotations[key]
		var ended struct {
			Since time.Time `json:"since"` // time of the quarantine, in annotations that have it
			At    time.Time `json:"at"`
		}
		if !is || json.Unmarshal([]byte(text), &ended) != nil {
			continue
		}
		if !ended.Since.IsZero() && !ended.Since.Before(g.at.Truncate(time.Microsecond)) || ended.Since.IsZero() && ended.At.After(g.at) {
			return true
		}
	}
	return false
}

// forgetDeletedAndExpired drops the state of deleted nodes, expired grants, and takings before the
// window.
func (b *Budget) forgetDeletedAndExpired(now time.Time) {
	maps.DeleteFunc(b.grants, func(_ types.UID, g grant) bool { return g.look != b.looks || now.Sub(g.at) > patience })
	maps.DeleteFunc(b.read, func(_ types.UID, s stamp) bool { return s.look != b.looks })
	maps.DeleteFunc(b.takings, func(_ types.UID, t taking) bool { return now.Sub(t.at) >= b.cfg.Window })
}

// A stamp is the parsed time of an annotation.
type stamp struct {
	text  string
	at    time.Time
	known bool
	look  uint64 // number of the last count that included the node
}

// takenOutOfServiceAt returns when the pipeline last took a node out of service. It reads the
// annotation of a quarantined node, or the one that stays on a node that was released or
// overridden by a person.
func (b *Budget) takenOutOfServiceAt(node *corev1.Node) (at time.Time, known bool) {
	for _, key := range []string{v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		text, is := node.Annotations[key]
		if !is {
			continue
		}
		s, is := b.read[node.UID]
		if !is || s.text != text {
			var said struct {
				AppliedAt time.Time `json:"appliedAt"`
				Since     time.Time `json:"since"`
			}
			err := json.Unmarshal([]byte(text), &said)
			if key == v1alpha1.AnnotationOwned {
				said.Since = said.AppliedAt
			}
			s = stamp{text: text, at: said.Since, known: err == nil && !said.Since.IsZero(), look: b.looks}
			b.read[node.UID] = s
		}
		return s.at, s.known
	}
	delete(b.read, node.UID)
	return time.Time{}, false
}

// isQuarantinedByUs reports whether the pipeline has quarantined a node.
func isQuarantinedByUs(node *corev1.Node) bool {
	_, is := node.Annotations[v1alpha1.AnnotationOwned]
	return is
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
			if _, is := node.Labels[role]; is {
				return false
			}
		}
	}
	return b.chosen.Matches(selector.Map(node.Labels))
}

func (b *Budget) poolLabelValue(node *corev1.Node) string {
	if b.cfg.Pool == "" {
		return ""
	}
	return node.Labels[b.cfg.Pool]
}

func sortedPoolNames(counts map[string]poolCounts) []string { return slices.Sorted(maps.Keys(counts)) }
