package kubebed

import (
	"errors"
	"os"
)

const (
	logFolder  = "logs"
	tempPrefix = "fleetloop-kubebed-"
)

// A folder has the state of one bed, and is locked while the bed uses it.
//
//	lock            lock of the process that runs the bed
//	pki/            the authority, the server's certificate, the token keys
//	etcd/           the data
//	etcd.sock       the socket of etcd
//	port            the last port of the API server
//	logs/           the output of the programs, a file each
//	*.kubeconfig    for the users of Kubeconfig
type folder struct{ *LockedFolder }

// createAndLockFolder creates and locks the folder. The empty path means a temporary folder.
func createAndLockFolder(path string) (*folder, error) {
	dir, err := OpenLockedFolder(path, tempPrefix)
	if err != nil {
		return nil, err
	}
	// Other users of this machine must not reach etcd by its socket, or read keys.
	err = errors.Join(os.Chmod(dir.Path, 0o700), //nolint:gosec // a folder
		os.MkdirAll(dir.Join(logFolder), 0o700), os.MkdirAll(dir.Join("pki"), 0o700), os.RemoveAll(dir.Join(etcdSocket)))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &folder{dir}, nil
}
