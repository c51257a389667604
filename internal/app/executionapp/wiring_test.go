package executionapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// seen are nodes as they are seen, or an error.
type seen struct {
	client.Reader

	nodes []corev1.Node
	err   error
}

// List gives them.
func (s seen) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok {
		nodes.Items = slices.Clone(s.nodes)
	}
	return s.err
}

// newNodes are n nodes, of which some are cordoned by executions, and some by people.
func newNodes(n int, byExecutions, byPeople []int) (nodes []corev1.Node) {
	for i := range n {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nameOf(i), Annotations: map[string]string{}}}
		if slices.Contains(byExecutions, i) {
			node.Spec.Unschedulable, node.Annotations[v1alpha1.AnnotationLastExecution] = true, "uid"
		}
		if slices.Contains(byPeople, i) {
			node.Spec.Unschedulable = true
		}
		nodes = append(nodes, node)
	}
	return nodes
}

func nameOf(i int) string { return "node-" + string(rune('a'+i)) }

// TestCount verifies how many more nodes actions may change: one in ten, including nodes that
// executions have cordoned and that are still unschedulable.
func TestCount(t *testing.T) {
	touched := newNodes(20, nil, nil)
	touched[3].Annotations[v1alpha1.AnnotationLastExecution] = "uid"
	for name, tc := range map[string]struct {
		reason string
		nodes  []corev1.Node
		want   int // how many of the last five may be acted on
	}{
		"None":          {"one always may", nil, 1},
		"Few":           {"one always may", newNodes(5, nil, nil), 1},
		"Twenty":        {"one in ten", newNodes(20, nil, nil), 2},
		"Cordoned":      {"one of the two is", newNodes(20, []int{0}, nil), 1},
		"AllCordoned":   {"both are", newNodes(20, []int{0, 1}, nil), 0},
		"ByPeople":      {"what people do does not count", newNodes(20, nil, []int{0, 1}), 2},
		"Uncordoned":    {"an execution was there, and it is schedulable again", touched, 2},
		"ItselfIsOneOf": {"who acts on a cordoned one takes no other", newNodes(20, []int{15, 16}, nil), 2},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := execution.NewGate(execution.GateConfig{MaxNodePercent: 10, MaxConcurrent: 99})
			if err != nil {
				t.Fatal(err)
			}
			if err := updateGateNodes(t.Context(), seen{nodes: tc.nodes}, g); err != nil {
				t.Fatal(err)
			}
			in := 0
			now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
			for i := 15; i < 20; i++ {
				c := execution.Claim{
					UID: types.UID(nameOf(i)), Key: types.NamespacedName{Name: nameOf(i)}, Action: "drain_node", Node: true,
					Target: execution.TargetKey(v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: nameOf(i)}),
				}
				if g.EnterOrQueue(c, now).In {
					in++
				}
			}
			if in != tc.want {
				t.Errorf("%s: %d may be acted on, want %d", tc.reason, in, tc.want)
			}
		})
	}
}

// TestCountKeeps verifies that the last node count stays while nodes cannot be listed.
func TestCountKeeps(t *testing.T) {
	g, err := execution.NewGate(execution.GateConfig{MaxNodePercent: 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := updateGateNodes(t.Context(), seen{nodes: newNodes(20, []int{0, 1}, nil)}, g); err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	if err := updateGateNodes(t.Context(), seen{err: away}, g); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
	c := execution.Claim{UID: "x", Action: "drain_node", Node: true, Target: execution.TargetKey(v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: nameOf(7)})}
	if g.EnterOrQueue(c, time.Now()).In {
		t.Error("a third of twenty nodes may be acted on")
	}
}

// TestShareWithoutRequester verifies that executions without a requester share half of what one
// requester gets, of the limit of executions and of the slots for conditions, as the help says.
func TestShareWithoutRequester(t *testing.T) {
	cfg := OverriddenDefaults().Part
	cfg.Gate.MaxConcurrent, cfg.Gate.MaxPerRequester = 10, policy.MaxEvaluatorProcesses/2 // what one requester gets of the slots
	g, err := execution.NewGate(cfg.toGateConfig())
	if err != nil {
		t.Fatal(err)
	}
	slots := conditionEvaluator{policy.NewEvaluator()}
	for _, requester := range []string{"alice", ""} {
		running, evaluating := 0, 0
		for i := range cfg.Gate.MaxConcurrent {
			name := fmt.Sprintf("%s-%d", requester, i)
			if g.EnterOrQueue(execution.Claim{UID: types.UID(name), Key: types.NamespacedName{Name: name}, Action: "scale_deployment", Target: name, Requester: requester}, time.Now()).In {
				running++
			}
			if _, err := slots.ReservePlace(requester); err == nil {
				evaluating++
			}
		}
		want := cfg.Gate.MaxPerRequester
		if requester == "" {
			want /= 2
		}
		if running != want || evaluating != want {
			t.Errorf("requester %q gets %d executions and %d slots, want %d of each", requester, running, evaluating, want)
		}
	}
	help := NewCommand(io.Discard, io.Discard, func(string) (string, bool) { return "", false }).PersistentFlags().Lookup("max-per-requester").Usage
	if want := "without a requester share half of this number"; !strings.Contains(help, want) {
		t.Errorf("the help lacks %q: %s", want, help)
	}
}
