// Package guard has the API server check who asks for executions, who approves
// them, and who writes what the controller writes: by admission policies, which
// need no server of ours, fail closed, and know for certain who a request is from.
//
// A ValidatingAdmissionPolicy refuses; Objects are the five of them with their
// bindings, which hold for the namespace of executions and no other. Stamps are
// MutatingAdmissionPolicies that write names where a request has none; they are
// a convenience, served since Kubernetes 1.36, and nothing rests on them.
//
// What the policies promise is only worth something while they are there. Watch
// looks after that: approvals count only while Missing gives no reason why not.
//
// Whoever may write the policies themselves, or act as the controller, is not
// held by any of this. Those rights are an administrator's: on
// admissionregistration.k8s.io, on serviceaccounts/token, Pods and Secrets in the
// namespace of executions, and to impersonate.
package guard
