// Package plan decides the manifest to send for a Shoot, given the live Shoot. It is
// pure, and the same for every kind of garden.
//
// The live Shoot takes precedence in three cases. A Shoot without the labels of the
// cluster is never changed. A version that Gardener raised is never lowered, since
// Gardener would always reject that. A request that is older than the last accepted one
// is not sent at all.
package plan

import (
	"slices"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Live is the current Shoot.
type Live struct {
	Labels      map[string]string
	Annotations map[string]string
	Deleting    bool
	Spec        shoot.Spec
}

// Apply returns the manifest to send for the live Shoot. Its error is why no manifest
// may be sent.
func Apply(m shoot.Manifest, live Live) (shoot.Manifest, error) {
	ref := shoot.Ref{Name: m.Metadata.Name, Cluster: m.Metadata.Labels[shoot.LabelCluster], Installation: m.Metadata.Labels[shoot.LabelInstallation]}
	if err := Owned(ref, live.Labels); err != nil {
		return m, err
	}
	if sent, ours := Generation(live.Annotations), Generation(m.Metadata.Annotations); sent > ours {
		return m, shoot.Errorf(shoot.ClassConflict, "the Shoot already has cluster generation %d, this request has generation %d", sent, ours)
	}
	if live.Deleting {
		return m, shoot.Errorf(shoot.ClassConflict, "the Shoot is being deleted and can be created again afterwards")
	}
	m.Spec.Kubernetes.Version = higherVersion(m.Spec.Kubernetes.Version, live.Spec.Kubernetes.Version)
	m.Spec.Provider.Workers = planWorkers(m.Spec.Provider.Workers, live.Spec.Provider.Workers)
	return m, nil
}

// Owned returns an error if the labels are not those of the given Shoot, but those of
// another cluster, another installation, or none. A ref without a cluster owns nothing.
func Owned(ref shoot.Ref, labels map[string]string) error {
	if ref.Cluster != "" && labels[shoot.LabelCluster] == ref.Cluster && labels[shoot.LabelInstallation] == ref.Installation {
		return nil
	}
	return shoot.Errorf(shoot.ClassForeign, "a Shoot with this name exists and belongs to another cluster")
}

// Generation returns the sent generation in the annotations, 0 without a valid one.
func Generation(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[shoot.AnnotationGeneration], 10, 64)
	if err != nil {
		return 0 // written by another client: every request is newer
	}
	return n
}

// planWorkers returns the wanted workers with the live image where no newer one is
// wanted. The live image is sent even if none is wanted: Gardener raises its version,
// and would keep an incomplete image if the fields that an earlier apply set were
// withdrawn.
func planWorkers(wanted, live []shoot.Worker) []shoot.Worker {
	wanted = slices.Clone(wanted)
	for i, w := range wanted {
		at := slices.IndexFunc(live, func(l shoot.Worker) bool { return l.Name == w.Name })
		if at < 0 || live[at].Machine.Image == nil {
			continue
		}
		is, want := live[at].Machine.Image, w.Machine.Image
		if want == nil || want.Name == is.Name && Newer(is.Version, want.Version) {
			wanted[i].Machine.Image = &shoot.Image{Name: is.Name, Version: is.Version}
		}
	}
	return wanted
}
