// Package gardener writes Shoots to a Gardener, and reads them back.
//
// A Shoot is written by server-side apply, under a field manager of the
// installation. Unset fields belong to Gardener or to other clients, and stay. A
// Shoot that was never seen is only created, never changed. Any other is read
// first, and changed only in the version that was read. So the Shoot of another
// owner is never touched, whatever its name, and two workers cannot undo each
// other's work.
//
// Every error of a request is a *shoot.Error. Its class follows from Gardener's
// message, since the status code alone misleads: an unknown version is a 403, as
// missing permissions are, and an unknown profile is a 500.
//
// The package retries nothing, except the write of a Shoot that changed after it
// was read. Requests are limited in time and in number per second.
//
// The client requires these permissions:
//
// +kubebuilder:rbac:groups=core.gardener.cloud,resources=shoots,verbs=get;list;watch;create;patch;delete
package gardener
