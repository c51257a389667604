package shoot

import (
	"slices"
	"strconv"
)

// LiveShoot is the current Shoot.
type LiveShoot struct {
	Labels      map[string]string
	Annotations map[string]string
	Deleting    bool
	Spec        Spec
}

// PlanManifest returns the manifest to send for the live Shoot. Its error is why no manifest
// may be sent.
func PlanManifest(m Manifest, live LiveShoot) (Manifest, error) {
	ref := Ref{Name: m.Metadata.Name, Cluster: m.Metadata.Labels[LabelCluster], Installation: m.Metadata.Labels[LabelInstallation]}
	if err := CheckOwner(ref, live.Labels); err != nil {
		return m, err
	}
	if sent, ours := ManifestGeneration(live.Annotations), ManifestGeneration(m.Metadata.Annotations); sent > ours {
		return m, Errorf(ClassConflict, "the Shoot already has cluster generation %d, this request has generation %d", sent, ours)
	}
	if live.Deleting {
		return m, Errorf(ClassConflict, "the Shoot is being deleted and can be created again afterwards")
	}
	m.Spec.Kubernetes.Version = higherVersion(m.Spec.Kubernetes.Version, live.Spec.Kubernetes.Version)
	m.Spec.Provider.Workers = planWorkers(m.Spec.Provider.Workers, live.Spec.Provider.Workers)
	return m, nil
}

// CheckOwner returns an error if the labels are not those of the given Shoot, but those of
// another cluster, another installation, or none. A ref without a cluster owns nothing.
func CheckOwner(ref Ref, labels map[string]string) error {
	if ref.Cluster != "" && labels[LabelCluster] == ref.Cluster && labels[LabelInstallation] == ref.Installation {
		return nil
	}
	return Errorf(ClassForeign, "a Shoot with this name exists and belongs to another cluster")
}

// ManifestGeneration returns the sent generation in the annotations, 0 without a valid one.
func ManifestGeneration(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[AnnotationGeneration], 10, 64)
	if err != nil {
		return 0 // written by another client: every request is newer
	}
	return n
}

// planWorkers returns the wanted workers with the live image where no newer one is
// wanted. The live image is sent even if none is wanted: Gardener raises its version,
// and would keep an incomplete image if the fields that an earlier apply set were
// withdrawn.
func planWorkers(wanted, live []Worker) []Worker {
	wanted = slices.Clone(wanted)
	for i, w := range wanted {
		at := slices.IndexFunc(live, func(l Worker) bool { return l.Name == w.Name })
		if at < 0 || live[at].Machine.Image == nil {
			continue
		}
		is, want := live[at].Machine.Image, w.Machine.Image
		if want == nil || want.Name == is.Name && IsNewerVersion(is.Version, want.Version) {
			wanted[i].Machine.Image = &Image{Name: is.Name, Version: is.Version}
		}
	}
	return wanted
}
