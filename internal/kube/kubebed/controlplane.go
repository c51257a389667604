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

// Files in the bed's folder. The programs run there, so that the path of
// etcd's socket stays within what the kernel takes.
const (
	etcdSocket     = "etcd.sock"
	etcdPeerSocket = "etcd-peer.sock"

	tokenKey       = "tokens.key"
	tokenPublicKey = "tokens.pub"

	issuer = "https://kubernetes.default.svc.cluster.local" // of tokens
)

// pki is the path of a file of keys or certificates, for a program.
func pki(name string) string { return filepath.Join("pki", name) }

func etcdArgs(temporary bool) []string {
	args := []string{
		"--data-dir=etcd",
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + etcdPeerSocket,
		"--initial-advertise-peer-urls=unix://" + etcdPeerSocket,
		"--initial-cluster=default=unix://" + etcdPeerSocket,
	}
	if temporary {
		args = append(args, "--unsafe-no-fsync") // nobody will miss the data
	}
	return args
}

func apiServerArgs(o Options, port int) []string {
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + o.ListenAddress,
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=pki",
		"--tls-cert-file=" + pki("server.crt"),
		"--tls-private-key-file=" + pki("server.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("kubelet-client.crt"),
		"--kubelet-client-key=" + pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", // the names of Nodes resolve nowhere
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + pki(tokenPublicKey),
		"--service-account-signing-key-file=" + pki(tokenKey),
		"--service-cluster-ip-range=" + o.ServiceRange,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}
	if o.onLoopback() {
		args = append(args, "--endpoint-reconciler-type=none") // Endpoints must not be loopback addresses
	}
	return append(args, o.Args[APIServer]...)
}

func controllerManagerArgs(o Options, kubeconfig string) []string {
	return append([]string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + pki("ca.crt"),
		"--service-account-private-key-file=" + pki(tokenKey),
		"--controllers=" + strings.Join(o.Controllers, ","),
	}, o.Args[ControllerManager]...)
}

func schedulerArgs(o Options, kubeconfig string) []string {
	return append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, o.Args[Scheduler]...)
}

// writeServerFiles writes what the API server proves itself with.
func writeServerFiles(f *folder, a *authority, o Options) error {
	prefix, err := netip.ParsePrefix(o.ServiceRange)
	if err != nil {
		return fmt.Errorf("service range: %w", err)
	}
	service := prefix.Masked().Addr().Next() // of the Service "kubernetes"
	server, err := a.server(
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{net.ParseIP(o.ListenAddress), net.ParseIP(loopback), service.AsSlice()})
	if err != nil {
		return err
	}
	kubelet, err := a.client("kube-apiserver-kubelet-client", []string{administrators})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(f.Join(pki("server.crt")), slices.Concat(server.cert, a.pem), 0o600),
		os.WriteFile(f.Join(pki("server.key")), server.key, 0o600),
		os.WriteFile(f.Join(pki("kubelet-client.crt")), kubelet.cert, 0o600),
		os.WriteFile(f.Join(pki("kubelet-client.key")), kubelet.key, 0o600),
		ensureTokenKeys(f.Join("pki")),
	)
}
