package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A plantedBug breaks one promise. It shows that the checker finds that in a history of the whole product.
//
// It is an edit of one file for the compiler only.
type plantedBug struct {
	Promise string // number of the promise that it breaks, which is also its name
	File    string // from the root of the module
	Old     string // occurs once in the file
	New     string
	Faults  string // kinds of faults that the bug needs to show; empty means none
	Upgrade bool   // the bug shows in an upgrade; the release before does not have it
}

// listBugs returns all bugs that can be planted.
func listBugs() []plantedBug { return append(listBugsUpToR9(), listBugsOfPromisesFromR10()...) }

func listBugsUpToR9() []plantedBug {
	return []plantedBug{
		{
			// A quarter of the resources is never announced.
			Promise: "R1", File: "internal/sentinel/publish.go", Old: `err := p.publisher.Publish(ctx, event)`,
			New: `var err error; if event.Subject[len(event.Subject)-1] >= '4' { err = p.publisher.Publish(ctx, event) }`,
		},
		{
			// Each event has a copy with another id.
			Promise: "R2", File: "internal/sentinel/publish.go", Old: `err := p.publisher.Publish(ctx, event)`,
			New: `again := *event; again.ID += "-again"; err := errors.Join(p.publisher.Publish(ctx, event), p.publisher.Publish(ctx, &again))`,
		},
		{
			// Forty events are published for each one that the limit allows.
			Promise: "R3", File: "internal/sentinel/publish.go", Old: `err := p.publisher.Publish(ctx, event)`,
			New: `var err error; for i := range 40 { copied := *event; copied.ID += string(rune('A' + i)); err = errors.Join(err, p.publisher.Publish(ctx, &copied)) }`,
		},
		{
			// The sink is not told of updates.
			Promise: "R4", File: "internal/clusterworker/completing.go", Old: `return newChange(claim, ShootUpdated, ""), true`, New: `return Change{}, false`,
		},
		{
			// A node pool gets one machine too many.
			Promise: "R5", File: "internal/clusterworker/manifest/pool.go", Old: `return replicas, replicas`, New: `return replicas, replicas + 1`,
		},
		{
			// Every second edit goes to another Shoot.
			Promise: "R6", File: "internal/clusterworker/manifest/manifest.go", Old: `Name:        claim.ShootName,`,
			New: `Name: claim.ShootName + strconv.FormatInt(claim.Generation%2, 10),`,
		},
		{
			// No approval is needed.
			Promise: "R7", File: "internal/execution/approval.go", Old: `>= int(max(a.RequiredCount, 1))`, New: `>= 0`,
		},
		{
			// Each Job has a copy.
			Promise: "R8", File: "internal/execution/operator/host.go", Old: `err := h.client.Create(call, j, client.FieldOwner(component))`,
			New: `again := j.DeepCopy(); again.Name += "-again"; err := errors.Join(h.client.Create(call, j, client.FieldOwner(component)), h.client.Create(call, again, client.FieldOwner(component)))`,
		},
		{
			// A rollback scales to another number than before.
			Promise: "R9", File: "internal/execution/action/scale.go", Old: `live.GetNamespace(), "replicas": was}`, New: `live.GetNamespace(), "replicas": 1}`,
		},
	}
}

func listBugsOfPromisesFromR10() []plantedBug {
	return []plantedBug{
		{
			// All nodes of a pool may be out of service at once.
			Promise: "R10", File: "internal/nodefault/budget/budget.go",
			Old: `return maxOutOfService, maxPerWindow`, New: `return members, members`,
		},
		{
			// A process that is asked to stop ends with an error.
			Promise: "R11", File: "internal/lifecycle/lifecycle.go", Old: `if err := r.stopWithin(opts.StopTimeout); err != nil {`,
			New: `if err := errors.Join(r.stopWithin(opts.StopTimeout), errors.New("planted")); err != nil {`, Faults: "restart",
		},
		{
			// Each event leaves 500 goroutines behind.
			Promise: "R12", File: "internal/sentinel/publish.go", Old: `err := p.publisher.Publish(ctx, event)`,
			New: `for range 500 { go func() { select {} }() }; err := p.publisher.Publish(ctx, event)`,
		},
		{
			// The clock of the sentinels is an hour ahead.
			Promise: "R13", File: "internal/sentinel/publish.go", Old: `time.Now().UTC(),`, New: `time.Now().UTC().Add(time.Hour),`,
		},
		{
			// This release refuses all reports about nodes.
			Promise: "R14", File: "internal/nodefault/intake/event.go", Old: `if e.Node == "" {`, New: `if e.Node != "" {`, Upgrade: true,
		},
		{
			// All sentinels watch an eighth of the resources.
			Promise: "R17", File: "internal/sentinel/shard/group.go", Old: `{ return g.holds.ownsHash(hashID(id)) }`,
			New: `{ return hashID(id)%8 == 0 || g.holds.ownsHash(hashID(id)) }`,
		},
		{
			// Each token has all permissions.
			Promise: "R19", File: "internal/fleetapi/auth/tokens.go", Old: `Tenant: e.Tenant, Roles: e.Roles}, Wrong`,
			New: `Tenant: e.Tenant, Roles: e.Roles, Unrestricted: true}, Wrong`,
		},
		{
			// The Shoot of a history that has ended is replaced.
			Promise: "R20", File: "internal/shoot/plan.go", Old: `return isOtherHistory && `, New: `return false && isOtherHistory && `, Faults: "restore",
		},
	}
}

// findBug returns the bug that breaks a promise.
func findBug(promise string) (plantedBug, error) {
	var names []string
	for _, b := range listBugs() {
		if b.Promise == promise {
			return b, nil
		}
		names = append(names, b.Promise)
	}
	return plantedBug{}, fmt.Errorf("unknown bug %q: use %s", promise, strings.Join(names, ", "))
}

// bugNeedsUpgrade reports whether a bug shows only in an upgrade.
func bugNeedsUpgrade(promise string) bool {
	b, err := findBug(promise)
	return err == nil && b.Upgrade
}

// addBug adds the edited file of a bug. root is the folder of the module.
func (o *overlay) addBug(b plantedBug, root string) error {
	if err := o.edit(filepath.Join(root, filepath.FromSlash(b.File)), b.Old, b.New); err != nil {
		return fmt.Errorf("plant the bug %s: %w", b.Promise, err)
	}
	return nil
}
