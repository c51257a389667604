package kubebed

import (
	"errors"
	"os"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/lockdir"
)

const (
	logFolder  = "logs"
	tempPrefix = "fleetloop-kubebed-"
)

// A folder is the state of one bed, held by a lock for as long as we use it.
//
//	lock            held by the process that runs the bed
//	pki/            the authority, the server's certificate, the token keys
//	etcd/           the data
//	etcd.sock       where etcd listens
//	port            where the API server listened last
//	logs/           what the programs said, a file each
//	*.kubeconfig    for the users that were asked for
type folder struct{ *lockdir.Dir }

// openFolder makes the folder and locks it. Empty is a temporary one.
func openFolder(path string) (*folder, error) {
	dir, err := lockdir.Open(path, tempPrefix)
	if err != nil {
		return nil, err
	}
	// Others on this machine must not reach etcd by its socket, or read keys.
	err = errors.Join(os.Chmod(dir.Path, 0o700), //nolint:gosec // a folder
		os.MkdirAll(dir.Join(logFolder), 0o700), os.MkdirAll(dir.Join("pki"), 0o700), os.RemoveAll(dir.Join(etcdSocket)))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &folder{dir}, nil
}
