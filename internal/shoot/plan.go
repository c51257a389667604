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

// PrepareManifestForUpdate returns the wanted manifest with the versions and images of the live
// Shoot that are newer. Its error is why no manifest may be sent.
func PrepareManifestForUpdate(wanted Manifest, live LiveShoot) (prepared Manifest, err error) {
	ref := Ref{
		Name:         wanted.Metadata.Name,
		Cluster:      wanted.Metadata.Labels[LabelCluster],
		Installation: wanted.Metadata.Labels[LabelInstallation],
	}
	if err := CheckOwnedByRef(ref, live.Labels); err != nil {
		return wanted, err
	}
	sent, ours := ParseSentGeneration(live.Annotations), ParseSentGeneration(wanted.Metadata.Annotations)
	if isFromLostHistory(wanted, live.Annotations) {
		return wanted, NewClassErrorf(
			ClassConflict,
			"the Shoot has changes that the database lost when it was restored: they have cluster generation %d, the backup ends at generation %d",
			sent,
			wanted.Known.highestIn(live.Annotations[AnnotationHistory]),
		)
	}
	if sent > ours {
		return wanted, NewClassErrorf(ClassConflict, "the Shoot already has cluster generation %d, this request has generation %d", sent, ours)
	}
	if live.Deleting {
		return wanted, NewClassErrorf(ClassConflict, "the Shoot is being deleted and can be created again afterwards")
	}
	wanted.Spec.Kubernetes.Version = wantedOrNewerLiveVersion(wanted.Spec.Kubernetes.Version, live.Spec.Kubernetes.Version)
	wanted.Spec.Provider.Workers = keepNewerLiveImages(wanted.Spec.Provider.Workers, live.Spec.Provider.Workers)
	return wanted, nil
}

// isFromLostHistory reports whether a Shoot was changed last by a history of the database that has
// ended, with a generation that the database does not know to have been sent. After a restore, generations are
// given again, so the present one can be equal or higher.
func isFromLostHistory(wanted Manifest, live map[string]string) bool {
	liveHistory, ownHistory := live[AnnotationHistory], wanted.Metadata.Annotations[AnnotationHistory]
	isOtherHistory := liveHistory != "" && ownHistory != "" && liveHistory != ownHistory
	return isOtherHistory && ParseSentGeneration(live) > wanted.Known.highestIn(liveHistory)
}

// CheckOwnedByRef returns an error if the labels are not those of the given Shoot. They are those
// of another cluster, another installation, or none. A ref without a cluster owns nothing.
func CheckOwnedByRef(ref Ref, labels map[string]string) error {
	if ref.Cluster != "" && labels[LabelCluster] == ref.Cluster && labels[LabelInstallation] == ref.Installation {
		return nil
	}
	return NewClassErrorf(ClassForeign, "a Shoot with this name exists and belongs to another cluster")
}

// ParseSentGeneration returns the sent generation in the annotations, 0 without a valid one.
func ParseSentGeneration(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[AnnotationGeneration], 10, 64)
	if err != nil {
		return 0 // written by another client: every request is newer
	}
	return n
}

// keepNewerLiveImages returns the wanted workers with the live image where no newer one is
// wanted. The live image is sent even if none is wanted: Gardener raises its version,
// and would keep an incomplete image if the fields that an earlier apply set were
// withdrawn.
func keepNewerLiveImages(wanted, live []Worker) []Worker {
	wanted = slices.Clone(wanted)
	for i, worker := range wanted {
		at := slices.IndexFunc(live, func(l Worker) bool { return l.Name == worker.Name })
		if at < 0 || live[at].Machine.Image == nil {
			continue
		}
		liveImage, wantedImage := *live[at].Machine.Image, worker.Machine.Image
		if wantedImage == nil || isNewerVersionOfImage(liveImage, *wantedImage) {
			wanted[i].Machine.Image = &liveImage
		}
	}
	return wanted
}

func isNewerVersionOfImage(image, than Image) bool {
	return image.Name == than.Name && IsNewerVersion(image.Version, than.Version)
}
