package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
)

const (
	sentinelGroup = "hyperfleet.redhat.com"
	sentinelsName = "sentinelconfigs"
)

// Sentinel is a SentinelConfig in the console.
type Sentinel struct {
	Host             string             `json:"host"`
	Namespace        string             `json:"namespace"`
	Name             string             `json:"name"`
	ResourceType     string             `json:"resource_type"`
	Ready            bool               `json:"ready"`
	Message          string             `json:"message,omitempty"`
	Selector         string             `json:"selector,omitempty"`
	LastPoll         *time.Time         `json:"last_poll,omitempty"`
	ResourcesWatched int64              `json:"resources_watched"`
	EventsPublished  int64              `json:"events_published"`
	Shards           []Shard            `json:"shards"`
	Conditions       []metav1.Condition `json:"conditions,omitempty"`
}

// Shard is the part of one replica.
type Shard struct {
	Index  int    `json:"index"`
	Holder string `json:"holder"`
	// LagSeconds is the time since its last poll. It is absent before the first.
	LagSeconds       *float64 `json:"lag_seconds,omitempty"`
	ResourcesWatched int64    `json:"resources_watched"`
}

func toSentinel(host string, config *v1alpha1.SentinelConfig) Sentinel {
	out := Sentinel{
		Host: host, Namespace: config.Namespace, Name: config.Name, ResourceType: config.Spec.ResourceType, Selector: config.Status.Selector,
		ResourcesWatched: config.Status.ResourcesWatched, EventsPublished: config.Status.EventsPublished, Shards: []Shard{}, Conditions: config.Status.Conditions,
		Message: "no sentinel has reported yet",
	}
	if c := meta.FindStatusCondition(config.Status.Conditions, "Ready"); c != nil {
		out.Ready, out.Message = c.Status == metav1.ConditionTrue, c.Message
	}
	if t := config.Status.LastPollTime; t != nil {
		at := t.UTC()
		out.LastPoll = &at
	}
	for i, r := range config.Status.Replicas {
		shard := Shard{Index: i, Holder: r.Name, ResourcesWatched: r.ResourcesOwned}
		if r.LastPollTime != nil {
			lag := max(0, time.Since(r.LastPollTime.Time).Seconds())
			shard.LagSeconds = &lag
		}
		out.Shards = append(out.Shards, shard)
	}
	return out
}

// serveSentinels serves the SentinelConfigs that the person may list.
func (h *Host) serveSentinels(w http.ResponseWriter, r *http.Request) error {
	readable, err := listReadableSentinelConfigs(r.Context(), h, false)
	if err != nil {
		return err
	}
	answer := page[Sentinel]{Items: []Sentinel{}, AsOf: time.Now().UTC()}
	for _, s := range readable {
		answer.Items = append(answer.Items, toSentinel(h.cfg.Name, s))
	}
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// listReadableSentinelConfigs returns the SentinelConfigs that the person may list, by namespace and name. If all
// are needed, it is an error that the person may not list those of every namespace.
func listReadableSentinelConfigs(ctx context.Context, host *Host, requireAllNamespaces bool) ([]*v1alpha1.SentinelConfig, error) {
	f, err := host.reviews.newReadFilter(ctx, console.PersonFromContext(ctx), "list", sentinelGroup, sentinelsName)
	if err != nil {
		return nil, err
	}
	if requireAllNamespaces {
		if ok, err := f.allowsRead(ctx, "", ""); err != nil || !ok {
			return nil, errors.Join(err, errMayNotList)
		}
	}
	var all v1alpha1.SentinelConfigList
	if err := host.reader.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list sentinels: %w", err)
	}
	readable, err := filterReadable(ctx, f, all.Items)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(readable, func(a, b *v1alpha1.SentinelConfig) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return readable, nil
}
