package executionapp

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// logged tells the log what was done.
type logged struct{ log *slog.Logger }

// Record writes one line.
func (l logged) Record(ctx context.Context, c execution.Change) {
	l.log.InfoContext(ctx, "change", "by", by, "action", string(c.Action), "execution", c.Execution, "uid", c.UID, "does", c.Does,
		"target_kind", c.Target.Kind, "target_namespace", c.Target.Namespace, "target_name", c.Target.Name, "who", c.By, "dry_run", c.DryRun, "reason", c.Reason, "message", c.Message)
}

// both are two that hear of changes.
type both [2]execution.Recorder

// Record tells both.
func (b both) Record(ctx context.Context, c execution.Change) {
	for _, r := range b {
		r.Record(ctx, c)
	}
}
