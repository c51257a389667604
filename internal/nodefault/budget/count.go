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
		b.addNodeToPoolCounts(counts, node, now, false)
	}
	if candidate != nil {
		b.addNodeToPoolCounts(counts, candidate, now, true)
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

// addNodeToPoolCounts adds a node to the counts of its pool.
func (b *Budget) addNodeToPoolCounts(
	counts map[string]poolCounts, node *corev1.Node, now time.Time, isCandidate bool,
) {
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
		c.candidate = c.outOfService() - before
	}
	counts[pool] = c
}

// markNodeSeen records that a node exists, so that its remembered state is kept.
func (b *Budget) markNodeSeen(uid types.UID) {
	if granted, ok := b.grants[uid]; ok {
		granted.lastCount = b.countNumber
		b.grants[uid] = granted
	}
	if parsed, ok := b.parsed[uid]; ok {
		parsed.lastCount = b.countNumber
		b.parsed[uid] = parsed
	}
}

// updateTakingAndGrant records the state of a node, and reports whether it is granted and does not
// show the cordon yet.
func (b *Budget) updateTakingAndGrant(node *corev1.Node, now time.Time) (grantPending bool) {
	// Remember when the node was taken out of service, if that was within the window.
	takenAt, known := b.takenOutOfServiceAt(node)
	withinWindow := known && now.Sub(takenAt) < b.cfg.Window
	last, remembered := b.takings[node.UID]
	if withinWindow && (!remembered || takenAt.After(last.at)) {
		b.takings[node.UID] = taking{pool: b.poolLabelValue(node), at: takenAt}
	}

	// End a grant that the node shows, or that it will not show any more.
	granted, pending := b.grants[node.UID]
	if !pending {
		return false
	}
	// The annotation has the time of the grant in microseconds. An older one belongs to a
	// previous session.
	observed := known && !takenAt.Before(granted.at.Truncate(time.Microsecond))
	expired := now.Sub(granted.at) > grantTimeout
	if observed || expired || isReleasedAfterGrant(node, granted) {
		delete(b.grants, node.UID)
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
	maps.DeleteFunc(b.grants, func(_ types.UID, g grant) bool {
		return g.lastCount != b.countNumber || now.Sub(g.at) > grantTimeout
	})
	maps.DeleteFunc(b.parsed, func(_ types.UID, p parsedAnnotation) bool { return p.lastCount != b.countNumber })
	maps.DeleteFunc(b.takings, func(_ types.UID, t taking) bool { return now.Sub(t.at) >= b.cfg.Window })
}

// A parsedAnnotation is the time in an annotation of a node. It is kept, because each request counts
// all nodes.
type parsedAnnotation struct {
	text  string // the annotation
	at    time.Time
	known bool // whether the annotation has a time

	lastCount uint64 // number of the last count that included the node
}

// takenOutOfServiceAt returns when the pipeline last took a node out of service. It reads the
// annotation of a quarantined node, or the one that stays on a node that was released or
// overridden by a person.
func (b *Budget) takenOutOfServiceAt(node *corev1.Node) (at time.Time, known bool) {
	for _, key := range []string{v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		text, exists := node.Annotations[key]
		if !exists {
			continue
		}
		parsed, ok := b.parsed[node.UID]
		if !ok || parsed.text != text {
			parsed = parseTakenAt(key, text)
			parsed.lastCount = b.countNumber
			b.parsed[node.UID] = parsed
		}
		return parsed.at, parsed.known
	}
	delete(b.parsed, node.UID)
	return time.Time{}, false
}

// parseTakenAt reads when a node was taken out of service from an annotation.
func parseTakenAt(key, text string) parsedAnnotation {
	var annotation struct {
		AppliedAt time.Time `json:"appliedAt"` // in AnnotationOwned
		Since     time.Time `json:"since"`     // in the other annotations
	}
	err := json.Unmarshal([]byte(text), &annotation)
	at := annotation.Since
	if key == v1alpha1.AnnotationOwned {
		at = annotation.AppliedAt
	}
	return parsedAnnotation{text: text, at: at, known: err == nil && !at.IsZero()}
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
