package kubebed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Files in the bed's folder. The programs run there, so that the path of etcd's socket
// stays within the kernel's limit.
const (
	etcdSocket     = "etcd.sock"
	etcdPeerSocket = "etcd-peer.sock"

	tokenKey       = "tokens.key"
	tokenPublicKey = "tokens.pub"

	proxyName = "front-proxy-client" // user of the API server in requests to the API servers behind it

	issuer = "https://kubernetes.default.svc.cluster.local" // of tokens
)

// buildPKIPath returns the path of a file with keys or certificates, relative to the working
// folder of the programs.
func buildPKIPath(name string) string { return filepath.Join("pki", name) }

func newEtcdArgs(temporary bool) []string {
	args := []string{
		"--data-dir=etcd",
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + etcdPeerSocket,
		"--initial-advertise-peer-urls=unix://" + etcdPeerSocket,
		"--initial-cluster=default=unix://" + etcdPeerSocket,
	}
	if temporary {
		args = append(args, "--unsafe-no-fsync") // the data is disposable
	}
	return args
}

func newAPIServerArgs(o Options, port int) []string {
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + o.ListenAddress,
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=pki",
		"--tls-cert-file=" + buildPKIPath("server.crt"),
		"--tls-private-key-file=" + buildPKIPath("server.key"),
		"--client-ca-file=" + buildPKIPath("ca.crt"),
		"--requestheader-client-ca-file=" + buildPKIPath(proxyAuthority+".crt"),
		"--requestheader-allowed-names=" + proxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + buildPKIPath(proxyName+".crt"),
		"--proxy-client-key-file=" + buildPKIPath(proxyName+".key"),
		"--kubelet-client-certificate=" + buildPKIPath("kubelet-client.crt"),
		"--kubelet-client-key=" + buildPKIPath("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", // the names of Nodes do not resolve
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + buildPKIPath(tokenPublicKey),
		"--service-account-signing-key-file=" + buildPKIPath(tokenKey),
		"--service-cluster-ip-range=" + o.ServiceRange,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}
	if o.listensOnLoopback() {
		args = append(args, "--endpoint-reconciler-type=none") // Endpoints must not be loopback addresses
	}
	return append(args, o.Args[APIServer]...)
}

func newControllerManagerArgs(o Options, kubeconfig string) []string {
	return append([]string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + buildPKIPath("ca.crt"),
		"--service-account-private-key-file=" + buildPKIPath(tokenKey),
		"--controllers=" + strings.Join(o.Controllers, ","),
	}, o.Args[ControllerManager]...)
}

func newSchedulerArgs(o Options, kubeconfig string) []string {
	return append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, o.Args[Scheduler]...)
}

// writeServerKeysAndCerts writes the keys and certificates of the API server.
func writeServerKeysAndCerts(f *folder, a *authority, o Options) error {
	prefix, err := netip.ParsePrefix(o.ServiceRange)
	if err != nil {
		return fmt.Errorf("service range: %w", err)
	}
	service := prefix.Masked().Addr().Next() // address of the Service "kubernetes"
	server, err := a.newServerPair(APIServer,
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{net.ParseIP(o.ListenAddress), net.ParseIP(loopback), service.AsSlice()})
	if err != nil {
		return err
	}
	kubelet, err := a.newClientPair("kube-apiserver-kubelet-client", []string{administrators})
	if err != nil {
		return err
	}
	proxies, err := loadOrCreateAuthority(f.Join("pki"), proxyAuthority)
	if err != nil {
		return err
	}
	proxy, err := proxies.newClientPair(proxyName, nil)
	if err != nil {
		return err
	}
	return errors.Join(f.writePair("server", a, server), f.writePair("kubelet-client", a, kubelet), f.writePair(proxyName, proxies, proxy),
		ensureTokenKeys(f.Join("pki")))
}

// writePair writes a certificate together with that of its authority, and its key.
func (f *folder) writePair(name string, by *authority, p pair) error {
	return errors.Join(os.WriteFile(f.Join(buildPKIPath(name+".crt")), slices.Concat(p.cert, by.pem), 0o600),
		os.WriteFile(f.Join(buildPKIPath(name+".key")), p.key, 0o600))
}
