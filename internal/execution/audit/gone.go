package audit

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// openPage is the number of open executions processed at a time.
const openPage = 200

// A Page selects executions in a namespace of a cluster.
type Page struct {
	Cluster, Namespace string
	After              string // UID of the last execution of the previous page
	Most               int
}

// RecordDeletion records that an execution was deleted, along with its records that are not stored yet.
// ke is its last known state. After an error the call may be repeated as long as the caller holds
// ke, which is stored nowhere else.
func (a *Auditor) RecordDeletion(ctx context.Context, ke *v1alpha1.KubernetesExecution, deletedAt time.Time, unseen bool) error {
	records := RecordsOfDeleted(ke, Deletion{At: deletedAt, Unseen: unseen}, a.cfg.Cluster)
	if err := a.appendRecords(ctx, ke, records); err != nil {
		return fmt.Errorf("record deletion of execution %q: %w", ke.Namespace+"/"+ke.Name, err)
	}
	return nil
}

// RecordMissedDeletions records deletions that were missed: executions of a namespace without a recorded
// end or deletion that no longer exist. It returns their number. After an error the next call continues
// with the rest.
func (a *Auditor) RecordMissedDeletions(
	ctx context.Context, namespace string,
	exists func(context.Context, types.NamespacedName, types.UID) (bool, error),
) (recorded int, err error) {
	page := Page{
		Cluster:   sanitizeAndTruncate(a.cfg.Cluster, maxText),
		Namespace: sanitizeAndTruncate(namespace, maxText),
		Most:      openPage,
	}
	for {
		open, err := a.store.ListOpenExecutions(ctx, page)
		if err != nil {
			return recorded, fmt.Errorf("find deleted executions: %w", err)
		}
		// Existence is checked after the list was read, so a new execution is never mistaken for a
		// deleted one.
		var deletions []Record
		for _, record := range open {
			name := types.NamespacedName{Namespace: record.Namespace, Name: record.Name}
			stillExists, err := exists(ctx, name, types.UID(record.ExecutionUID))
			if err != nil {
				return recorded, fmt.Errorf("find execution %q: %w", name, err)
			}
			if !stillExists {
				deletions = append(deletions, newMissedDeletionRecord(record, time.Now()))
			}
		}
		if len(deletions) > 0 {
			if err := a.queue.appendInBatch(ctx, deletions); err != nil {
				return recorded, fmt.Errorf("record deletion of %d executions: %w", len(deletions), err)
			}
			recorded += len(deletions)
		}
		if len(open) < page.Most {
			return recorded, nil
		}
		page.After = open[len(open)-1].ExecutionUID
	}
}

// newMissedDeletionRecord returns the record of a deleted execution of which only its stored records are
// known.
func newMissedDeletionRecord(r Record, noticed time.Time) Record {
	r.Seq = seqDeleted
	r.Type = Deleted
	r.Time = noticed.UTC().Truncate(time.Microsecond)
	r.ActorType = Unknown
	r.Payload = payloadObject{"unseen": true}.redactedBoundedJSON(&redactor{})
	return r
}
