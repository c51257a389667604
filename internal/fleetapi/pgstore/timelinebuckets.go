package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

// buildBucketsQuery returns the statement that counts events by lane and time step. It returns the
// lanes with the most events, and with each count the number of all lanes.
func buildBucketsQuery(q *timeline.BucketQuery) *sqlBuilder {
	c := new(sqlBuilder)
	since := c.addArg(q.Since, "timestamptz")
	name, cluster, of := "e.cluster", "''", "e."
	switch q.By {
	case timeline.LaneNode:
		name, cluster = "e.node", "e.cluster"
	case timeline.LaneActor:
		name = "e.actor"
	case timeline.LaneCluster:
	}
	c.writeSQL("with cells as (select ", name, " as name, ", cluster, " as cluster, floor(extract(epoch from e.at - ", since, ") / ",
		c.addArg(q.Step.Seconds(), "double precision"), ")::integer as step, count(*) as events, count(*) filter (where e.failed) as failed",
		" from timeline.change_event e")
	if q.Field != "" {
		of = "f."
		c.writeSQL(joinChangedField)
	}
	c.writeSQL(" where ", of, "at >= ", since, " and ", of, "at < ", c.addArg(q.Until, "timestamptz"))
	if q.By == timeline.LaneNode {
		c.writeSQL(" and e.node <> ''")
	}
	c.writeFilterConditions(&q.Filter)
	c.writeSQL(` group by 1, 2, 3), lanes as (
	select name, cluster, row_number() over (order by sum(events) desc, name, cluster) as place, count(*) over () as lanes
	from cells group by name, cluster)
select l.place, l.lanes, c.name, c.cluster, c.step, c.events, c.failed
from cells c join lanes l using (name, cluster) where l.place <= `, c.addArg(q.Lanes, "bigint"), " order by l.place, c.step")
	return c
}

// CountEventsInBuckets counts the events of a query by lane and time step.
func (s *TimelineStore) CountEventsInBuckets(ctx context.Context, scope timeline.Scope, q timeline.BucketQuery) (timeline.Buckets, error) {
	statement := buildBucketsQuery(&q)
	var counted timeline.Buckets
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		statement.queueOn(b).Query(func(rows pgx.Rows) error {
			var place int
			var lane timeline.LaneCounts
			var step timeline.StepCount
			into := []any{&place, &counted.All, &lane.Name, &lane.Cluster, &step.Step, &step.Count, &step.Failed}
			_, err := pgx.ForEachRow(rows, into, func() error {
				if place > len(counted.Lanes) {
					counted.Lanes = append(counted.Lanes, lane)
				}
				last := &counted.Lanes[place-1]
				last.Steps = append(last.Steps, step)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return timeline.Buckets{}, wrapAndMarkTimelineUnavailable(err, "count change events")
	}
	return counted, nil
}
