package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// newCollectionPage returns a list page of n resources as the fleet API serves them. Each has about a
// kilobyte, and none is due at now.
func newCollectionPage(n int, now time.Time) []byte {
	list := v1.List{Size: n, Continue: "bmV4dA"}
	for i := range n {
		list.Items = append(list.Items, newFleetResource(i, now))
	}
	page, err := json.Marshal(list)
	if err != nil {
		panic(err) // every value here can be marshalled
	}
	return page
}

func newFleetResource(i int, now time.Time) v1.Resource {
	id := fmt.Sprintf("019a8e30-7c40-7b21-9d0e-%012x", i)
	name := fmt.Sprintf("cluster-%06d", i)
	labels := map[string]string{"region": []string{"us-east", "us-west", "eu-west"}[i%3], "environment": "production"}
	reported := now.Add(-time.Duration(i%spread) * time.Second).Truncate(time.Microsecond)
	r := v1.Resource{
		ID: id, Kind: v1.KindCluster, Name: name, Href: v1.BasePath + "/clusters/" + id,
		Labels:   labels,
		Metadata: v1.Metadata{Name: name, Labels: labels},
		Spec: json.RawMessage(
			`{"region":"us-east-1","nodes":{"min":3,"max":12,"type":"m5.xlarge"},"version":"4.17.3","network":{"cidr":"10.0.0.0/16","private":true}}`,
		),
		Generation:  3,
		CreatedTime: now.Add(-1000 * time.Hour), UpdatedTime: now.Add(-100 * time.Hour),
		CreatedBy: "owner@example.com",
		Status: v1.Status{
			Phase: v1.PhaseReady, ObservedGeneration: 3,
			LastUpdatedTime: reported, LastTransitionTime: now.Add(-90 * time.Hour),
		},
	}
	for _, c := range []string{v1.ConditionReconciled, "DnsSuccessful"} {
		r.Status.Conditions = append(r.Status.Conditions, v1.Condition{
			Type: c, Status: v1.ConditionTrue, Reason: "ReconciledAll", Message: "all required adapters have reported",
			ObservedGeneration: 3, CreatedTime: r.CreatedTime, LastUpdatedTime: reported, LastTransitionTime: r.Status.LastTransitionTime,
		})
	}
	return r
}

// A rounder does the sentinel's work on a page: decode, decide, skip.
type rounder struct {
	scanner *source.Scanner
	profile *decision.Profile
}

// newRounder returns a rounder with the profile of the configuration file.
func newRounder() *rounder {
	return &rounder{scanner: source.NewScanner(false), profile: decision.NewGenerationThenAgeProfile(decision.DefaultAges())}
}

// ScanAndDecide returns how many of the resources on page were skipped at now.
func (r *rounder) ScanAndDecide(page []byte, now time.Time) (skipped int, err error) {
	_, err = r.scanner.ScanPage(page, func(it *source.Item) error {
		if !it.Fault.Skips() && !r.profile.Decide(&it.Resource, now).ShouldPublish {
			skipped++
		}
		return nil
	})
	return skipped, err
}

// countTokens visits every JSON token of page and ignores it: the minimum cost of a streaming reader.
func countTokens(page []byte) (tokens int, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(page), jsontext.AllowDuplicateNames(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) {
				return tokens, nil
			}
			return tokens, err
		}
		tokens++
	}
}

// unmarshalAndDecide does the work of Round the usual way: encoding/json into the structs of
// the wire contract, then a loop over them.
func unmarshalAndDecide(page []byte, now time.Time) (skipped int, err error) {
	var list v1.List
	if err := json.Unmarshal(page, &list); err != nil {
		return 0, err
	}
	profile := decision.NewGenerationThenAgeProfile(decision.DefaultAges())
	for i := range list.Items {
		in := &list.Items[i]
		r := decision.Resource{
			Generation: in.Generation, ObservedGeneration: in.Status.ObservedGeneration, Phase: string(in.Status.Phase),
			Created: in.CreatedTime, Updated: in.UpdatedTime,
			LastUpdated: in.Status.LastUpdatedTime, LastTransition: in.Status.LastTransitionTime,
		}
		if !profile.Decide(&r, now).ShouldPublish {
			skipped++
		}
	}
	return skipped, nil
}
