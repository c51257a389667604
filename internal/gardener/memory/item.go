package memory

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A storedShoot is one Shoot. Labels, annotations and spec are replaced and never changed, so
// that they can be shared.
type storedShoot struct {
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
func (it *storedShoot) lastSentGeneration() int64 { return shoot.ParseSentGeneration(it.annotations) }

// toLiveShoot returns the Shoot in the form that plans use.
func (it *storedShoot) toLiveShoot() shoot.LiveShoot {
	return shoot.LiveShoot{Labels: it.labels, Annotations: it.annotations, Deleting: it.deleting, Spec: it.spec}
}

// toObservedShoot returns the state of the Shoot.
func (it *storedShoot) toObservedShoot() shoot.Observed {
	return shoot.Observed{
		Name: it.name, UID: it.uid, ResourceVersion: strconv.FormatUint(it.version, 10), Created: it.created,
		Cluster: it.labels[shoot.LabelCluster], Installation: it.labels[shoot.LabelInstallation], SentGeneration: it.lastSentGeneration(), History: it.annotations[shoot.AnnotationHistory],
		Generation: it.generation, ObservedGeneration: it.observedGeneration, Deleting: it.deleting, Version: it.spec.Kubernetes.Version,
		LastOperation: it.op.toLastOperation(), LastErrors: it.op.errors, Conditions: it.op.buildConditions(),
	}
}

// cloneManifest returns a deep copy of a manifest.
func cloneManifest(m shoot.Manifest) shoot.Manifest {
	m.Metadata.Labels, m.Metadata.Annotations = maps.Clone(m.Metadata.Labels), maps.Clone(m.Metadata.Annotations)
	m.Spec = cloneSpec(m.Spec)
	return m
}

// replaceOwnedKeys returns the entries of all with those of oldOwned replaced by those of newOwned.
func replaceOwnedKeys(all, oldOwned, newOwned map[string]string) map[string]string {
	m := make(map[string]string, len(all)+len(newOwned))
	for k, v := range all {
		if _, ours := oldOwned[k]; !ours {
			m[k] = v
		}
	}
	maps.Copy(m, newOwned)
	return m
}

// fillUnsetFromLive returns the wanted spec with live values where wanted and lastApplied have
// none. Others set those.
func fillUnsetFromLive(wanted, lastApplied, live shoot.Spec) shoot.Spec {
	s := cloneSpec(wanted)
	if s.Networking == nil && lastApplied.Networking == nil {
		s.Networking = clonePointer(live.Networking)
	}
	for i := range s.Provider.Workers {
		w := &s.Provider.Workers[i]
		if w.Volume == nil && findWorkerOrZero(lastApplied, w.Name).Volume == nil {
			w.Volume = clonePointer(findWorkerOrZero(live, w.Name).Volume)
		}
	}
	return s
}

// findWorkerOrZero returns the worker of a name, empty for an absent one.
func findWorkerOrZero(s shoot.Spec, name string) shoot.Worker {
	for _, w := range s.Provider.Workers {
		if w.Name == name {
			return w
		}
	}
	return shoot.Worker{}
}

// equalAnnotationsExceptGeneration compares annotations except those of the generation and its
// history.
func equalAnnotationsExceptGeneration(a, b map[string]string) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	for _, m := range []map[string]string{a, b} {
		delete(m, shoot.AnnotationGeneration)
		delete(m, shoot.AnnotationHistory)
	}
	return maps.Equal(a, b)
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
