package processnode

import (
	"errors"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

const (
	podsFolder = "pods"
	tempPrefix = "fleetloop-node-"
)

// lockFolderAndClearPods opens the folder of a node's pods; the empty path means a temporary
// folder. It removes the pods of an earlier node, as their processes died with it.
func lockFolderAndClearPods(path string) (*kubebed.LockedFolder, error) {
	dir, err := kubebed.OpenLockedFolder(path, tempPrefix)
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
