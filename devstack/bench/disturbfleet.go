package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// fleetFailureStatements bring a loaded fleet into the state of a bad day. Three in a hundred clusters are
// not ready, each with a failed report, and one in a hundred is not synced. The messages name the
// cluster, as those of adapters do.
func fleetFailureStatements() []string {
	const share = "abs(hashtext(id::text)) % 100"
	return []string{
		`update tenant.resources set phase = 'Failed', last_transition_time = now() - random() * interval '1 day' where kind = 'Cluster' and ` + share + ` < 3`,
		`insert into tenant.adapter_reports (resource_id, kind, tenant, adapter, observed_generation, conditions, created_time, last_report_time)
			select id, kind, tenant, (array['dns', 'validation', 'provisioning'])[1 + abs(hashtext(name)) % 3], 1, json_build_array(json_build_object(
				'type', 'Available', 'status', 'False', 'reason', 'Reason' || abs(hashtext(name)) % 40, 'message', format('the zone of %s has %s records', name, abs(hashtext(name)) % 1000),
				'last_transition_time', now()))::json, now(), now()
			from tenant.resources where kind = 'Cluster' and phase = 'Failed'`,
		`update tenant.cluster_sync set synced = now(), unsynced_since = null, synced_generation = generation where abs(hashtext(cluster_id::text)) % 100 <> 7`,
		`update tenant.cluster_sync set sync_attempts = 9, sync_error = format('quota of %s exceeded for "%s"', abs(hashtext(cluster_id::text)) % 1000, cluster_id),
			unsynced_since = now() - random() * interval '1 day', due_at = now() + interval '1 hour' where synced is null`,
		`vacuum (analyze) tenant.resources, tenant.adapter_reports, tenant.cluster_sync`,
	}
}

// simulateFleetFailures brings a loaded fleet into the state of a bad day, as its owner.
func simulateFleetFailures(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range fleetFailureStatements() {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("disturb the fleet: %w", err)
		}
	}
	return nil
}
