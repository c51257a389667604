// Package realnode runs a real Kubernetes node for a test bed: a kubelet with
// containerd and runc, whose pods are containers with separate addresses.
//
// It requires Linux, root, and the programs containerd, ctr, runc, ip and sh;
// kubelet comes from the bed. All of it runs in namespaces that Isolate creates
// for the whole program, including the bed and its API server: network, mounts
// and processes. Nothing listens on, is routed over or is mounted on the machine;
// state is in memory. When the program inside ends, however it ends, the kernel
// ends all processes and drops mounts, links and state with it. Isolate outside
// removes the empty cgroups that are left.
//
// Inside there is one bridge. The API server listens on its address, which is
// also that of the Service "kubernetes", so that in-cluster clients work without
// kube-proxy: take BedOptions for the bed.
//
// Limitations:
//   - the network has no route to the outside and no DNS; Services other than
//     "kubernetes" have no address that answers
//   - images come from archives, none is pulled
//   - at most 126 pods have an address at a time; kubectl logs, exec and attach
//     work, port-forward needs socat on the machine
//   - AppArmor is off, and so is the OOM score, which some machines refuse even to
//     root; limits of CPU and memory hold
//   - the container runtime is the machine's: crun does not run where cgroup v1
//     and v2 are mounted together
package realnode
