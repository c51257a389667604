package execution_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// BenchmarkGateTurn measures one execution leaving, the next entering and a new one queueing. Many
// others wait, either for one target or each for its target in a separate namespace.
func BenchmarkGateTurn(b *testing.B) {
	for name, spread := range map[string]bool{"OneTarget": false, "ManyTargets": true} {
		for _, waiting := range []int{50, 5_000, 50_000} {
			b.Run(fmt.Sprintf("%s/%d", name, waiting), func(b *testing.B) {
				g := newGate(b, execution.GateConfig{MaxConcurrent: 1, MaxPerNamespace: 3})
				now := startGate()
				var next types.NamespacedName
				g.OnWake(func(k types.NamespacedName) { next = k })
				arrive := func(i int) execution.Claim {
					c := newClaim(fmt.Sprint("e", i), "web")
					if spread {
						c.Target, c.TargetNamespace = fmt.Sprint("web", i), fmt.Sprint("ns", i)
					}
					return c
				}
				claims := make(map[types.NamespacedName]execution.Claim, waiting)
				for i := range waiting + 1 {
					c := arrive(i)
					claims[c.Key] = c
					now = now.Add(1)
					g.EnterOrQueue(c, now)
				}
				inside := arrive(0)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					now = now.Add(1)
					g.Leave(inside.UID, v1alpha1.OutcomeSucceeded, now)
					delete(claims, inside.Key)
					inside = claims[next]
					if !g.EnterOrQueue(inside, now).In {
						b.Fatal("who was woken was not let in")
					}
					c := arrive(waiting + 1 + i)
					claims[c.Key] = c
					g.EnterOrQueue(c, now)
				}
			})
		}
	}
}
