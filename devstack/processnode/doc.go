// Package processnode is a Kubernetes node whose containers are processes of
// this machine: no image, no container runtime, no root. It is for tests and
// demonstrations, and provides no isolation.
//
// It registers a Node, renews its Lease and conditions, and runs every pod that
// the scheduler or spec.nodeName binds to it.
//
// As on a kubelet's node:
//   - init containers one after the other, then all containers; restart policies;
//     the back-off between restarts; exit codes; termination messages, including
//     the end of the log if the pod requests it
//   - env, envFrom, fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, $(NAME)
//   - volumes emptyDir, configMap, secret, downwardAPI, projected, hostPath; service
//     account tokens are bound to the pod, renewed, and invalid after its deletion
//   - activeDeadlineSeconds; deletion and eviction with SIGTERM to the process, the
//     grace period (including a preStop sleep), then SIGKILL to all its children
//   - phases, conditions and container states, including readiness gates
//   - readiness, liveness and startup probes by httpGet and tcpSocket
//   - kubectl logs, with --follow, --tail, --previous and --limit-bytes
//   - after a restart of the node, containers that ran count as ended with 137
//     (ContainerStatusUnknown), and the restart policy applies
//
// Different from it:
//   - a container runs the program in Options.Images for its image, or its command
//     from this machine's files; an image without a program and a command waits as
//     ErrImagePull
//   - SIGTERM ends a program that does not handle it; as process 1 of a real
//     container it would continue until the end of the grace period
//   - all pods share the machine's network and address, so two pods with the same
//     port collide, Services find no endpoints, and a program that listens on all
//     interfaces listens on the machine's
//   - resources are announced and used for scheduling, but not limited;
//     securityContext, dnsPolicy and hostAliases are ignored; files belong to the
//     user of this process
//   - a pod that requires another feature (another kind of volume, exec and grpc
//     probes, lifecycle hooks, sidecars among the init containers, devices) fails
//     at once with reason Unsupported and the name of the feature
//   - no kubectl exec, attach or port-forward; kubectl logs without timestamps; no
//     Kubernetes events
//   - when the agent ends, its processes end with it at once; the objects stay as
//     they are, as after a power failure of a machine
//
// # Paths
//
// On Linux with user namespaces, volumes are mounted at their mount paths. So
// rest.InClusterConfig works unchanged, the termination log is at its path and the
// host name is the pod's; see Sandbox. Where namespaces are refused
// (Ubuntu's AppArmor rule, some containers, other systems), the volumes are ordinary
// folders. Their paths replace the mount paths in command, args and environment.
// KUBECONFIG is a file for the API server with the pod's token, which kubectl and
// controller-runtime's GetConfig use. A program that opens a fixed path itself, as
// rest.InClusterConfig does, fails there.
//
// A process starts in an empty, dedicated folder unless workingDir is set. TMPDIR
// and HOME are in the pod's folder.
package processnode
