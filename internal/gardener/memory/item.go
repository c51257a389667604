package memory

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// An item is one Shoot. Labels, annotations and spec are replaced and never changed, so
// that they can be shared.
type item struct {
	name, uid   string
	version     uint64 // of the last change
	created     time.Time
	labels      map[string]string
	annotations map[string]string
	spec        shoot.Spec
	ours        shoot.Manifest // as last applied

	generation, observedGeneration int64
	deleting                       bool
	lingers                        bool // a finalizer stays

	breaks int
	op     operation
	at     int // index in the schedule, -1 if absent
}

// lastSentGeneration returns the generation that was sent last.
func (it *item) lastSentGeneration() int64 { return shoot.ManifestGeneration(it.annotations) }

// toLive returns the Shoot in the form that plans use.
func (it *item) toLive() shoot.LiveShoot {
	return shoot.LiveShoot{Labels: it.labels, Annotations: it.annotations, Deleting: it.deleting, Spec: it.spec}
}

// toObserved returns the state of the Shoot.
func (it *item) toObserved() shoot.Observed {
	return shoot.Observed{
		Name: it.name, UID: it.uid, ResourceVersion: strconv.FormatUint(it.version, 10), Created: it.created,
		Cluster: it.labels[shoot.LabelCluster], Installation: it.labels[shoot.LabelInstallation], SentGeneration: it.lastSentGeneration(),
		Generation: it.generation, ObservedGeneration: it.observedGeneration, Deleting: it.deleting, Version: it.spec.Kubernetes.Version,
		LastOperation: it.op.lastOperation(), LastErrors: it.op.errors, Conditions: it.op.conditions(),
	}
}

// cloneManifest returns a deep copy of a manifest.
func cloneManifest(m shoot.Manifest) shoot.Manifest {
	m.Metadata.Labels, m.Metadata.Annotations = maps.Clone(m.Metadata.Labels), maps.Clone(m.Metadata.Annotations)
	m.Spec = cloneSpec(m.Spec)
	return m
}

// replaceOwned returns the entries of all with those of oldOwned replaced by those of newOwned.
func replaceOwned(all, oldOwned, newOwned map[string]string) map[string]string {
	m := make(map[string]string, len(all)+len(newOwned))
	for k, v := range all {
		if _, ours := oldOwned[k]; !ours {
			m[k] = v
		}
	}
	maps.Copy(m, newOwned)
	return m
}

// wantedWithLiveDefaults returns the wanted spec with live values where neither the wanted nor the
// last spec has one, as others set those.
func wantedWithLiveDefaults(wanted, was, live shoot.Spec) shoot.Spec {
	s := cloneSpec(wanted)
	if s.Networking == nil && was.Networking == nil {
		s.Networking = clonePointer(live.Networking)
	}
	for i := range s.Provider.Workers {
		w := &s.Provider.Workers[i]
		if w.Volume == nil && findWorker(was, w.Name).Volume == nil {
			w.Volume = clonePointer(findWorker(live, w.Name).Volume)
		}
	}
	return s
}

// findWorker returns the worker of a name, empty for an absent one.
func findWorker(s shoot.Spec, name string) shoot.Worker {
	for _, w := range s.Provider.Workers {
		if w.Name == name {
			return w
		}
	}
	return shoot.Worker{}
}

// equalExceptGeneration compares annotations except the one of the generation.
func equalExceptGeneration(a, b map[string]string) bool {
	if len(b) != len(a) {
		return false
	}
	for k, v := range b {
		if k != shoot.AnnotationGeneration && a[k] != v {
			return false
		}
	}
	return true
}

// cloneSpec returns a deep copy of a spec.
func cloneSpec(s shoot.Spec) shoot.Spec {
	s.Networking = clonePointer(s.Networking)
	s.Provider.InfrastructureConfig = slices.Clone(s.Provider.InfrastructureConfig)
	s.Provider.ControlPlaneConfig = slices.Clone(s.Provider.ControlPlaneConfig)
	s.Provider.Workers = slices.Clone(s.Provider.Workers)
	for i := range s.Provider.Workers {
		w := &s.Provider.Workers[i]
		w.Machine.Image = clonePointer(w.Machine.Image)
		w.Volume = clonePointer(w.Volume)
		w.Zones = slices.Clone(w.Zones)
		w.Labels = maps.Clone(w.Labels)
		w.Taints = slices.Clone(w.Taints)
	}
	return s
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
