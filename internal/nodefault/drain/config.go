package drain

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"
)

// Config says how nodes are drained. What is zero means its default.
type Config struct {
	Deadline           time.Duration `key:"deadline" env:"NODE_FAULT_DRAIN_DEADLINE" flag:"drain-deadline" default:"30m" validate:"gt=0" doc:"How long the pods of a node have to go. What has not gone then has the drain fail."`
	MaxNodes           int           `key:"max_nodes" env:"NODE_FAULT_DRAIN_MAX_NODES" flag:"drain-max-nodes" default:"10" validate:"gte=1" doc:"How many nodes are drained at a time; others wait for their turn."`
	MaxPodsInFlight    int           `key:"max_pods_in_flight" env:"NODE_FAULT_DRAIN_MAX_PODS_IN_FLIGHT" default:"10" validate:"gte=1,lte=100" doc:"How many pods of one node are asked to go at the same time."`
	EvictionsPerSecond float64       `key:"evictions_per_second" env:"NODE_FAULT_DRAIN_EVICTIONS_PER_SECOND" default:"100" validate:"gt=0" doc:"How many evictions a second are asked of the API server, of all nodes together. Requests per second to the Kubernetes API bound it, too."`

	BarePods Treatment `key:"bare_pods" env:"NODE_FAULT_DRAIN_BARE_PODS" default:"wait" validate:"oneof=evict wait skip" doc:"What becomes of pods that nothing would make again: evict, wait (until they end by themselves), or skip (they stay, and the node counts as drained)."`
	EmptyDir Treatment `key:"empty_dir" env:"NODE_FAULT_DRAIN_EMPTY_DIR" default:"evict" validate:"oneof=evict wait skip" doc:"What becomes of pods that have an emptyDir volume on the disk of the node, which ends with them: evict, wait or skip."`

	Namespaces []Namespace `key:"namespaces" validate:"dive" doc:"How the pods of some namespaces are treated; the first entry whose pattern matches counts. Others are evicted."`
}

// Namespace says how the pods of some namespaces are treated.
type Namespace struct {
	Pattern    Pattern       `key:"pattern" validate:"required" doc:"Name of the namespace, or a pattern of names: * is any text, ? any character."`
	Mode       Mode          `key:"mode" default:"evict" validate:"oneof=evict wait wait-then-evict skip" doc:"What becomes of its pods: evict, wait (until they end by themselves), wait-then-evict, or skip (they stay, and the node counts as drained)."`
	EvictAfter time.Duration `key:"evict_after" validate:"gte=0" doc:"How long wait-then-evict waits, from the begin of the drain."`

	DeleteAfter      time.Duration `key:"delete_after" validate:"gte=0" doc:"So long after the begin of the drain, pods that a disruption budget keeps are deleted, with the time to end that they want for themselves. 0s is never."`
	ForceDeleteAfter time.Duration `key:"force_delete_after" validate:"gte=0" doc:"So long after a pod should have ended it is taken from the API, whether it runs or not: only for pods of which two may run at a time. 0s is never."`
}

// Treatment is what becomes of pods of a kind.
type Treatment string

// The treatments.
const (
	TreatEvict Treatment = "evict"
	TreatWait  Treatment = "wait"
	TreatSkip  Treatment = "skip"
)

// Mode is what becomes of the pods of a namespace.
type Mode string

// The modes.
const (
	ModeEvict         Mode = "evict"
	ModeWait          Mode = "wait"
	ModeWaitThenEvict Mode = "wait-then-evict"
	ModeSkip          Mode = "skip"
)

// Pattern is a pattern of names, as path.Match has them.
type Pattern string

// UnmarshalText takes a pattern that can be understood.
func (p *Pattern) UnmarshalText(text []byte) error {
	if _, err := path.Match(string(text), ""); err != nil {
		return fmt.Errorf("pattern %q: %w", text, err)
	}
	*p = Pattern(text)
	return nil
}

func (p Pattern) matches(name string) bool {
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

// Leaves says whether there are pods that stay on a node that counts as drained.
func (c Config) Leaves() bool {
	return c.BarePods == TreatSkip || c.EmptyDir == TreatSkip ||
		slices.ContainsFunc(c.Namespaces, func(n Namespace) bool { return n.Mode == ModeSkip })
}

// of is how the pods of a namespace are treated.
func (c Config) of(namespace string) Namespace {
	for _, n := range c.Namespaces {
		if n.Pattern.matches(namespace) {
			n.Mode = cmp.Or(n.Mode, ModeEvict)
			return n
		}
	}
	return Namespace{Mode: ModeEvict}
}
