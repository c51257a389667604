// Package realnode runs a real Kubernetes node for a test bed: a kubelet with
// containerd and runc, whose pods are containers with addresses of their own.
//
// It needs Linux, root, and the programs containerd, ctr, runc, ip and sh;
// kubelet comes from the bed. All of it happens in namespaces that Isolate
// makes for the whole program, the bed and its API server included: network,
// mounts and processes. Nothing listens on, is routed over or
// is mounted on the machine; state is in memory. When the program inside ends,
// however it ends, the kernel ends all processes and drops mounts, links and
// state with it; the empty cgroups that are left are removed by Isolate outside.
//
// Inside there is one bridge. The API server listens on its address, which is
// also that of the Service "kubernetes", so that in-cluster clients work without
// kube-proxy: take BedOptions for the bed.
//
// What it does not do:
//   - there is no way out of the network, and no DNS; Services other than
//     "kubernetes" have no address that answers
//   - images come from archives, none is pulled
//   - at most 126 pods with an address at a time; kubectl logs, exec and attach work,
//     port-forward needs socat on the machine
//   - AppArmor is off, and so is the OOM score, which some machines refuse even to root;
//     limits of CPU and memory hold
//   - the container runtime is the machine's: crun does not run where cgroup v1
//     and v2 are mounted together
package realnode
