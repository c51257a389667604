package drain

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"
)

// Config configures how nodes are drained. A zero field means its default.
type Config struct {
	Deadline           time.Duration `key:"deadline" env:"NODE_FAULT_DRAIN_DEADLINE" flag:"drain-deadline" default:"30m" validate:"gt=0" doc:"Maximum duration of a drain. A drain with pods left then fails."`
	MaxNodes           int           `key:"max_nodes" env:"NODE_FAULT_DRAIN_MAX_NODES" flag:"drain-max-nodes" default:"10" validate:"gte=1" doc:"Maximum number of nodes drained at the same time. Others wait."`
	MaxPodsInFlight    int           `key:"max_pods_in_flight" env:"NODE_FAULT_DRAIN_MAX_PODS_IN_FLIGHT" default:"10" validate:"gte=1,lte=100" doc:"Maximum number of pods of one node evicted at the same time."`
	EvictionsPerSecond float64       `key:"evictions_per_second" env:"NODE_FAULT_DRAIN_EVICTIONS_PER_SECOND" default:"100" validate:"gt=0" doc:"Maximum number of evictions per second, for all nodes together. The request limit of the Kubernetes client also applies."`

	BarePods Treatment `key:"bare_pods" env:"NODE_FAULT_DRAIN_BARE_PODS" default:"wait" validate:"oneof=evict wait skip" doc:"Treatment of pods without a controller: evict, wait (until they end) or skip (they stay, and the node counts as drained)."`
	EmptyDir Treatment `key:"empty_dir" env:"NODE_FAULT_DRAIN_EMPTY_DIR" default:"evict" validate:"oneof=evict wait skip" doc:"Treatment of pods with an emptyDir volume on disk, whose data is lost with the pod: evict, wait or skip."`

	Namespaces []NamespaceRule `key:"namespaces" validate:"dive" doc:"Treatment of the pods of some namespaces. The first entry with a matching pattern applies. Pods of other namespaces are evicted."`
}

// NamespaceRule configures how the pods of some namespaces are treated.
type NamespaceRule struct {
	Pattern    Pattern       `key:"pattern" validate:"required" doc:"Namespace, or pattern of namespaces: * matches any text, ? any character."`
	Mode       Mode          `key:"mode" default:"evict" validate:"oneof=evict wait wait-then-evict skip" doc:"Treatment of the pods: evict, wait (until they end), wait-then-evict or skip (they stay, and the node counts as drained)."`
	EvictAfter time.Duration `key:"evict_after" validate:"gte=0" doc:"Time from the start of the drain until wait-then-evict evicts the pods."`

	DeleteAfter      time.Duration `key:"delete_after" validate:"gte=0" doc:"Time from the start of the drain until pods that a PodDisruptionBudget blocks are deleted, with their grace period. 0s disables it."`
	ForceDeleteAfter time.Duration `key:"force_delete_after" validate:"gte=0" doc:"Time after the end of its grace period until a terminating pod is force-deleted, even if it still runs. Use it only for pods that may run twice. 0s disables it."`
}

// Treatment is how pods of a kind are treated.
type Treatment string

// The treatments.
const (
	TreatEvict Treatment = "evict"
	TreatWait  Treatment = "wait"
	TreatSkip  Treatment = "skip"
)

// Mode is how the pods of a namespace are treated.
type Mode string

// The modes.
const (
	ModeEvict         Mode = "evict"
	ModeWait          Mode = "wait"
	ModeWaitThenEvict Mode = "wait-then-evict"
	ModeSkip          Mode = "skip"
)

// Pattern is a pattern of names in the syntax of path.Match.
type Pattern string

// UnmarshalText parses and validates a pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	if _, err := path.Match(string(text), ""); err != nil {
		return fmt.Errorf("pattern %q: %w", text, err)
	}
	*p = Pattern(text)
	return nil
}

func (p Pattern) matchesName(name string) bool {
	is, err := path.Match(string(p), name)
	return is && err == nil
}

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 30*time.Minute)
	c.MaxNodes = cmp.Or(c.MaxNodes, 10)
	c.MaxPodsInFlight = cmp.Or(c.MaxPodsInFlight, 10)
	c.EvictionsPerSecond = cmp.Or(c.EvictionsPerSecond, 100)
	c.BarePods = cmp.Or(c.BarePods, TreatWait)
	c.EmptyDir = cmp.Or(c.EmptyDir, TreatEvict)
	return c
}

// MayLeavePods reports whether some pods may stay on a node that counts as drained.
func (c Config) MayLeavePods() bool {
	return c.BarePods == TreatSkip || c.EmptyDir == TreatSkip ||
		slices.ContainsFunc(c.Namespaces, func(n NamespaceRule) bool { return n.Mode == ModeSkip })
}

// firstMatchOrEvict returns how the pods of a namespace are treated.
func (c Config) firstMatchOrEvict(namespace string) NamespaceRule {
	for _, n := range c.Namespaces {
		if n.Pattern.matchesName(namespace) {
			n.Mode = cmp.Or(n.Mode, ModeEvict)
			return n
		}
	}
	return NamespaceRule{Mode: ModeEvict}
}
