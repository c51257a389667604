package timeline

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	defaultBuckets = 60
	maxBuckets     = 500
	// maxLanes is the maximum number of lanes in an answer.
	maxLanes = 50
	// defaultBucketRange is the time range of buckets without since.
	defaultBucketRange = 24 * time.Hour
)

// A Lane is the property of events by which buckets are separated.
type Lane string

// The lanes.
const (
	// LaneCluster has a lane for each cluster.
	LaneCluster Lane = "cluster"
	// LaneNode has a lane for each node of each cluster. Events without a node are not counted.
	LaneNode Lane = "node"
	// LaneActor has a lane for each actor.
	LaneActor Lane = "actor"
)

// A BucketQuery selects events to count, from Since to Until, which are both set.
type BucketQuery struct {
	Filter

	By   Lane
	Step time.Duration
	// Lanes is the maximum number of lanes.
	Lanes int
}

// Buckets holds the counts of the lanes with the most events, and the number of all lanes.
type Buckets struct {
	Lanes []LaneCounts
	All   int
}

// LaneCounts holds the counts of one lane. Steps without events have none.
type LaneCounts struct {
	Name string
	// Cluster is the cluster of a node, else "".
	Cluster string
	Steps   []StepCount
}

// A StepCount is the number of events in a time step, counted from zero.
type StepCount struct {
	Step          int
	Count, Failed int64
}

// ServeEventCounts counts change events by lane and time step.
func (t *Timeline) ServeEventCounts(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	q, err := t.parseBucketQuery(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	counted, err := t.store.CountEventsInBuckets(r.Context(), scope, q)
	if err != nil {
		return toProblem(err)
	}
	return rest.WriteJSONValue(w, http.StatusOK, newBucketsAnswer(&q, &counted))
}

// parseBucketQuery parses a request for buckets. A step is a whole number of seconds, so there may be
// fewer steps than the client asks for.
func (t *Timeline) parseBucketQuery(query url.Values, now time.Time) (q BucketQuery, err error) {
	if err = rejectUnknownIfStrict(query, listFilterParameters("since", "until", "buckets", "by")...); err != nil {
		return q, err
	}
	if q.Filter, err = parseFilterParameters(query); err != nil {
		return q, err
	}
	if q.Since, err = parseTimeParameter(query, "since", now); err != nil {
		return q, err
	}
	if q.Until, err = parseTimeParameter(query, "until", now); err != nil {
		return q, err
	}
	if q.Until.IsZero() {
		q.Until = now
	}
	if q.Since.IsZero() {
		q.Since = q.Until.Add(-defaultBucketRange)
	}
	if oldest := now.Add(-t.retention); q.Since.Before(oldest) {
		q.Since = oldest
	}
	if latest := now.Add(ahead); q.Until.After(latest) {
		q.Until = latest // no event is later
	}
	if !q.Since.Before(q.Until) {
		return q, rest.NewQueryError("until", "min", query.Get("until"), "must be after since and within the retention of %s", t.retention)
	}
	q.By, q.Lanes = cmp.Or(Lane(query.Get("by")), LaneCluster), maxLanes
	if q.By != LaneCluster && q.By != LaneNode && q.By != LaneActor {
		return q, rest.NewQueryError("by", "enum", string(q.By), "must be %s, %s or %s", LaneCluster, LaneNode, LaneActor)
	}
	buckets := defaultBuckets
	if text := query.Get("buckets"); text != "" {
		if buckets, err = strconv.Atoi(text); err != nil || buckets < 1 || buckets > maxBuckets {
			return q, rest.NewQueryError("buckets", "format", text, "must be from 1 to %d", maxBuckets)
		}
	}
	q.Since, q.Until = q.Since.Truncate(time.Microsecond).UTC(), q.Until.Truncate(time.Microsecond).UTC()
	q.Step = max(roundUpDuration(q.Until.Sub(q.Since)/time.Duration(buckets), time.Second), time.Second)
	return q, nil
}

func roundUpDuration(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }

func newBucketsAnswer(q *BucketQuery, counted *Buckets) v1.ChangeBuckets {
	steps := int(roundUpDuration(q.Until.Sub(q.Since), q.Step) / q.Step)
	answer := v1.ChangeBuckets{
		Since: q.Since, Until: q.Until, StepSeconds: int64(q.Step / time.Second),
		Lanes: make([]v1.ChangeLane, len(counted.Lanes)), MoreLanes: counted.All - len(counted.Lanes),
	}
	for i := range counted.Lanes {
		from := &counted.Lanes[i]
		lane := v1.ChangeLane{Name: from.Name, Cluster: from.Cluster, Counts: make([]int64, steps), Failed: make([]int64, steps)}
		for _, s := range from.Steps {
			lane.Counts[s.Step], lane.Failed[s.Step] = s.Count, s.Failed
		}
		answer.Lanes[i] = lane
	}
	return answer
}
