// Package plan decides what is sent to Gardener about a Shoot, given the Shoot
// that is there. It is pure, and the same for every kind of garden.
//
// What is there wins in three things. A Shoot that does not carry our labels is
// never touched. A version that Gardener raised is never lowered, since it would
// refuse that for ever. And a request that is older than the last one that was
// taken is not sent at all.
package plan

import (
	"slices"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Live is the Shoot that is there.
type Live struct {
	Labels      map[string]string
	Annotations map[string]string
	Deleting    bool
	Spec        shoot.Spec
}

// Apply gives the manifest to send for the Shoot that is there. Its error says
// why nothing may be sent.
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

// Owned is an error if the labels are not those of the Shoot that is meant: of
// another cluster, of another installation, or of nobody we know. A ref without
// a cluster owns nothing.
func Owned(ref shoot.Ref, labels map[string]string) error {
	if ref.Cluster != "" && labels[shoot.LabelCluster] == ref.Cluster && labels[shoot.LabelInstallation] == ref.Installation {
		return nil
	}
	return shoot.Errorf(shoot.ClassForeign, "a Shoot with this name exists and belongs to another cluster")
}

// Generation is the generation that annotations say was sent, 0 if none.
func Generation(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[shoot.AnnotationGeneration], 10, 64)
	if err != nil {
		return 0 // somebody else wrote it: whatever we send is newer
	}
	return n
}

// planWorkers are those wanted, with the live image where no newer one is wanted. It
// is sent even if none is wanted: Gardener raises its version, and would keep half
// an image if we took back the half that we once wrote.
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
