// Package gardener brings Shoots to a Gardener, and reads them back.
//
// A Shoot is written by server-side apply, under a field manager of the
// installation's own: what we do not set is Gardener's or somebody else's, and
// stays. A Shoot that was never seen is only ever made, never changed; any other is
// looked at first, and changed only as it was looked at. So a Shoot that is not
// ours is never touched, whatever its name, and two workers can not undo each
// other's work.
//
// Every error of a request is a *shoot.Error. Its class follows from what Gardener
// says, since the status code alone misleads: a version that it does not have is
// 403 as missing rights are, and a profile that it does not have is 500.
//
// Nothing is tried again here, besides a Shoot that changed while it was looked
// at. Requests are bounded in time and in number per second.
//
// What it may do needs to be granted:
//
// +kubebuilder:rbac:groups=core.gardener.cloud,resources=shoots,verbs=get;list;watch;create;patch;delete
package gardener
