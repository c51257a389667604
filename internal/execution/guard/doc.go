// Package guard has the API server check who asks for executions, who approves
// them, and who writes what the controller writes: by admission policies, which
// need no server of ours, fail closed, and know for certain who a request is from.
//
// A ValidatingAdmissionPolicy refuses; Objects are the five of them with their
// bindings, which hold for the namespace of executions and no other. Stamps are
// MutatingAdmissionPolicies that write names where a request has none; they are
// a convenience, served since Kubernetes 1.36, and nothing rests on them.
//
// The policies only protect what was written while they were in force. Watch looks
// after that. A Period is a time in which they were, without a gap: the UIDs and
// generations of all objects are the same at both ends, and API servers have had
// time to go by them. An execution counts as asked for by whom it names if it was
// created within a period, and an approval if it was written within the one in
// which it was asked for. The record of the period is a Lease, so that neither a
// restart of the controller nor another replica is a gap.
//
// A Watch cannot see an API server that neither the EndpointSlice default/kubernetes
// lists nor the configured address reaches, one that was started without the
// admission plugin ValidatingAdmissionPolicy for less than the 30 seconds between
// two trials, and writes to etcd itself.
//
// Whoever may write the policies themselves, or act as the controller, is not
// held by any of this. Those rights are an administrator's: on
// admissionregistration.k8s.io, on serviceaccounts/token, Pods, Secrets and Leases
// in the namespace of executions, and to impersonate. A right on Leases matters in
// a gap only: the policies keep the record from everybody but the controller.
package guard
