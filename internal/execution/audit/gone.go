package audit

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// openPage is how many open executions are looked at at a time.
const openPage = 200

// A Page chooses executions of a namespace of a cluster.
type Page struct {
	Cluster, Namespace string
	After              string // the UID that they are behind
	Most               int
}

func (g Gone) gonePayload() object {
	if g.Unseen {
		return object{"unseen": true}
	}
	return object{}
}

// SyncGone records that an execution is no longer there, and what is not recorded
// yet of what happened to it before. Ke is what it was at last. After an error the
// same may be tried again, for as long as somebody has ke: it stands nowhere else.
func (a *Auditor) SyncGone(ctx context.Context, ke *v1alpha1.KubernetesExecution, at time.Time, unseen bool) error {
	records := RecordsOfGone(ke, Gone{At: at, Unseen: unseen}, a.cfg.Cluster)
	if err := a.queue.appendRecords(ctx, records); err != nil {
		a.metrics.markWaiting(string(ke.UID), len(records))
		return fmt.Errorf("record deletion of execution %q: %w", ke.Namespace+"/"+ke.Name, err)
	}
	a.metrics.markRecorded(string(ke.UID))
	return nil
}

// CloseLost records that executions were deleted which nobody saw go: those of a
// namespace that have neither ended nor been deleted by what was recorded, and are
// not there. It says how many. What is asked whether one is there is asked after it
// was read that there was one, so an execution that is new is never taken for one
// that is gone. After an error the next call goes on with what is left.
func (a *Auditor) CloseLost(ctx context.Context, namespace string, there func(context.Context, types.NamespacedName, types.UID) (bool, error)) (closed int, err error) {
	p := Page{Cluster: cleanText(a.cfg.Cluster, maxText), Namespace: cleanText(namespace, maxText), Most: openPage}
	for {
		open, err := a.store.Open(ctx, p)
		if err != nil {
			return closed, fmt.Errorf("find deleted executions: %w", err)
		}
		var lost []Record
		for i := range open {
			r := &open[i]
			is, err := there(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, types.UID(r.ExecutionUID))
			if err != nil {
				return closed, fmt.Errorf("find execution %q: %w", r.Namespace+"/"+r.Name, err)
			}
			if !is {
				lost = append(lost, unseenRecord(*r, time.Now()))
			}
		}
		if len(lost) > 0 {
			if err := a.queue.appendRecords(ctx, lost); err != nil {
				return closed, fmt.Errorf("record deletion of %d executions: %w", len(lost), err)
			}
			closed += len(lost)
		}
		if len(open) < p.Most {
			return closed, nil
		}
		p.After = open[len(open)-1].ExecutionUID
	}
}

// unseenRecord is that an execution is gone of which nothing is known but its records.
func unseenRecord(r Record, noticed time.Time) Record {
	r.Seq, r.Type, r.Time = seqDeleted, Deleted, noticed.UTC().Truncate(time.Microsecond)
	r.ActorType, r.Payload = Unknown, Gone{Unseen: true}.gonePayload().boundedJSON(&redactor{})
	return r
}
