package processnode

import (
	"errors"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/lockdir"
)

const (
	podsFolder = "pods"
	tempPrefix = "fleetloop-node-"
)

// openFolder opens the folder where a node keeps its pods' files; empty is a
// temporary one. What an earlier node left of its pods is removed: their
// processes died with it.
func openFolder(path string) (*lockdir.Dir, error) {
	dir, err := lockdir.Open(path, tempPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir.Join(podsFolder)); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func (n *Node) podDir(pod *corev1.Pod) string {
	return filepath.Join(n.dir, podsFolder, string(pod.UID))
}
