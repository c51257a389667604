package action

import (
	"cmp"
	"slices"
	"sync"
)

// newCatalogue creates all actions, in no particular order.
func newCatalogue() []*Action {
	return []*Action{
		newApplyManifestAction(),
		newCollectDiagnosticsAction(),
		newCordonNodeAction(),
		newDeletePodAction(),
		newDrainNodeAction(),
		newExpandPVCAction(),
		newIncreaseResourcesAction(),
		newNotifyOnlyAction(),
		newPatchConfigMapAction(),
		newPatchDeploymentAction(),
		newQuarantinePodAction(),
		newReleasePodAction(),
		newRestartPodAction(),
		newRollbackDeploymentAction(),
		newRolloutRestartAction(),
		newRolloutStatusAction(),
		newScaleDeploymentAction(),
		newScaleStatefulSetAction(),
		newTaintNodeAction(),
		newUncordonNodeAction(),
		newUntaintNodeAction(),
		newUpdateHPAAction(),
		newUpdateImageAction(),
		newUpdateNetworkPolicyAction(),
		newUpdateSecretAction(),
	}
}

// known is the catalogue, made once: the same action is the same pointer.
//
//nolint:gochecknoglobals // a constant that Go has no way to write
var known = sync.OnceValue(func() []*Action {
	all := newCatalogue()
	slices.SortFunc(all, func(a, b *Action) int { return cmp.Compare(a.Name, b.Name) })
	return all
})

// Catalogue returns all actions, sorted by name. The caller must not modify them.
func Catalogue() []*Action { return slices.Clone(known()) }

// Find returns the action with the given name or alias.
func Find(name string) (a *Action, found bool) {
	for _, a := range known() {
		if a.Name == name || slices.Contains(a.Aliases, name) {
			return a, true
		}
	}
	return nil, false
}

// namesAndAliases returns all names and aliases.
func namesAndAliases() []string {
	var all []string
	for _, a := range known() {
		all = append(all, a.Name)
		all = append(all, a.Aliases...)
	}
	return all
}
