// Package guard makes the API server verify requesters, approvers and writes of the controller.
// It uses admission policies, which need no webhook server, fail closed, and see the
// authenticated user of each request.
//
// A ValidatingAdmissionPolicy refuses requests. Objects returns five of them with their
// bindings, which apply only to the namespace of executions. MutatingPolicyObjects returns
// MutatingAdmissionPolicies that fill in missing user names. They are a convenience, available
// since Kubernetes 1.36, and no check depends on them.
//
// The policies protect only writes that were made while they were in force. A Watch monitors
// that. A Period is a time in which they were in force without a gap: the UIDs and generations
// of all objects are the same at both ends, and API servers have had time to enforce them. An
// execution counts as requested by the named user if it was created within a period. An
// approval counts if it was written within the period in which it was requested. The period is
// recorded in a Lease, so that neither a restart of the controller nor a change of the leading
// replica is a gap.
//
// A Watch does not cover an API server that neither the EndpointSlice default/kubernetes lists
// nor the configured address reaches. It also misses an API server that ran without the
// admission plugin ValidatingAdmissionPolicy for less than the 30 seconds between two trials,
// and direct writes to etcd.
//
// The guard does not restrict users who may write the policies themselves or act as the
// controller. Those rights are for administrators: on admissionregistration.k8s.io, on
// serviceaccounts/token, Pods, Secrets and Leases in the namespace of executions, and to
// impersonate. A right on Leases matters only in a gap, because the policies let only the
// controller write the record.
package guard
