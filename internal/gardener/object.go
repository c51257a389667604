package gardener

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// objectMeta is the part of an object's metadata that the client reads.
type objectMeta struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Generation      int64             `json:"generation"`
	Created         time.Time         `json:"creationTimestamp"`
	Deleted         *time.Time        `json:"deletionTimestamp"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
}

// observedShoot is the part of a Shoot with its status.
type observedShoot struct {
	Metadata objectMeta `json:"metadata"`
	Spec     struct {
		Kubernetes struct {
			Version string `json:"version"`
		} `json:"kubernetes"`
	} `json:"spec"`
	Status status `json:"status"`
}

type status struct {
	ObservedGeneration int64      `json:"observedGeneration"`
	Hibernated         bool       `json:"hibernated"`
	LastOperation      *operation `json:"lastOperation"`
	LastErrors         []struct {
		Description string   `json:"description"`
		Codes       []string `json:"codes"`
	} `json:"lastErrors"`
	Conditions []struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"conditions"`
}

type operation struct {
	Type        string    `json:"type"`
	State       string    `json:"state"`
	Progress    int       `json:"progress"`
	Description string    `json:"description"`
	Updated     time.Time `json:"lastUpdateTime"`
}

// toObservedShoot returns the state of the Shoot.
func (s *observedShoot) toObservedShoot() shoot.Observed {
	metadata := s.Metadata
	observed := shoot.Observed{
		Name:               metadata.Name,
		UID:                metadata.UID,
		ResourceVersion:    metadata.ResourceVersion,
		Created:            metadata.Created,
		Cluster:            metadata.Labels[shoot.LabelCluster],
		Installation:       metadata.Labels[shoot.LabelInstallation],
		SentGeneration:     shoot.ParseSentGeneration(metadata.Annotations),
		History:            metadata.Annotations[shoot.AnnotationHistory],
		Generation:         metadata.Generation,
		ObservedGeneration: s.Status.ObservedGeneration,
		Deleting:           metadata.Deleted != nil,
		Hibernated:         s.Status.Hibernated,
		Version:            s.Spec.Kubernetes.Version,
	}
	if last := s.Status.LastOperation; last != nil {
		observed.LastOperation = &shoot.Operation{
			Type:        last.Type,
			State:       last.State,
			Progress:    last.Progress,
			Description: last.Description,
			Updated:     last.Updated,
		}
	}
	for _, e := range s.Status.LastErrors {
		observed.LastErrors = append(observed.LastErrors, shoot.LastError{
			Description: e.Description,
			Codes:       e.Codes,
		})
	}
	for _, c := range s.Status.Conditions {
		observed.Conditions = append(observed.Conditions, shoot.Condition{
			Type:    c.Type,
			Status:  c.Status,
			Reason:  c.Reason,
			Message: c.Message,
		})
	}
	return observed
}

// storedShoot is a live Shoot that is about to be written.
type storedShoot struct {
	Metadata struct {
		objectMeta
		Managers []struct {
			Manager   string          `json:"manager"`
			Operation string          `json:"operation"`
			Fields    json.RawMessage `json:"fieldsV1"`
		} `json:"managedFields"`
	} `json:"metadata"`
	// Raw is the spec as the server encodes it.
	Raw json.RawMessage `json:"spec"`

	spec shoot.Spec
}

// UnmarshalJSON decodes the Shoot, and its spec a second time.
func (f *storedShoot) UnmarshalJSON(text []byte) error {
	type plain storedShoot
	if err := json.Unmarshal(text, (*plain)(f)); err != nil {
		return err
	}
	return json.Unmarshal(f.Raw, &f.spec)
}

// toLiveShoot returns the Shoot in the form that plans use.
func (f *storedShoot) toLiveShoot() shoot.LiveShoot {
	m := f.Metadata
	return shoot.LiveShoot{Labels: m.Labels, Annotations: m.Annotations, Deleting: m.Deleted != nil, Spec: f.spec}
}

// unmarshalResponse decodes a response that must be an object.
func unmarshalResponse(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &shoot.Error{Class: shoot.ClassUnavailable, Err: fmt.Errorf("invalid response: %w", err)}
	}
	return nil
}
