// Package processnode is a Kubernetes node whose containers are processes of
// this machine: no image, no container runtime, no root. It is for tests and
// for trying things out, never for what must be kept apart.
//
// It registers a Node, keeps its Lease and conditions, and takes every pod that
// is bound to it, by the scheduler or by spec.nodeName.
//
// As on a kubelet's node:
//   - init containers one after the other, then all containers; restart policies;
//     the back-off between restarts; exit codes; termination messages, the
//     end of the log included where the pod asks for it
//   - env, envFrom, fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, $(NAME)
//   - volumes emptyDir, configMap, secret, downwardAPI, projected, hostPath; service
//     account tokens are bound to the pod, renewed, and gone with it
//   - activeDeadlineSeconds; deletion and eviction with SIGTERM to the process, the
//     grace period (a preStop sleep included), then SIGKILL to all that it started
//   - phases, conditions and container states, readiness gates included
//   - readiness, liveness and startup probes by httpGet and tcpSocket
//   - kubectl logs, with --follow, --tail, --previous and --limit-bytes
//   - when it comes back after it ended, containers that ran are counted as ended
//     with 137 (ContainerStatusUnknown), and the restart policy decides
//
// Unlike it:
//   - a container runs the program that Options.Images names for its image, or its
//     own command from this machine's files; an image that is not named and has no
//     command waits as ErrImagePull
//   - SIGTERM ends a program that does not handle it; as process 1 of a real container
//     it would go on until the grace period is over
//   - everything shares the machine's network and address, so two pods with the same
//     port collide, Services find no endpoints, and a program that listens
//     on all interfaces listens on the machine's
//   - resources are announced and scheduled by, but nothing is limited; securityContext,
//     dnsPolicy and hostAliases are ignored; files belong to this process's user
//   - a pod that needs something else (another kind of volume, exec and grpc probes,
//     lifecycle hooks, sidecars among the init containers, devices) fails at once with reason
//     Unsupported, naming it
//   - no kubectl exec, attach or port-forward; kubectl logs knows no timestamps; no
//     Kubernetes events
//   - when the agent ends, its processes end with it, at once; the objects stay as
//     they are, as they do when a machine loses power
//
// # Paths
//
// On Linux, where user namespaces are allowed, mounts stand at their own paths, so
// rest.InClusterConfig works unchanged, the termination log is at its path and the host
// name is the pod's; see package sandbox. Where they are refused (Ubuntu's AppArmor
// rule, some containers, other systems), the volumes are ordinary folders:
// their paths are put in place of the mount paths in command, args and environment, and
// KUBECONFIG names a file that leads to the API server with the pod's token, which
// kubectl and controller-runtime's GetConfig use. A program that opens a fixed path
// itself, as rest.InClusterConfig does, fails there.
//
// A process starts in an empty folder of its own unless workingDir says otherwise,
// and TMPDIR and HOME are in the pod's folder.
package processnode
