package quarantine_test

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// A party is the owner of a cordon.
type party string

const (
	nobody party = ""
	we     party = "we"
	they   party = "they"
)

// An oracle observes a fixture from outside. It knows who made each change, and which
// changes are forbidden.
type oracle struct {
	*fixture
	cordonedBy party
	// taints are those that the controller has added and others have not changed. off are
	// those that a person has removed in this session.
	taints, off map[string]bool
	unproven    map[string]bool // taints of the controller without any record
	session     string          // of the last mark that the controller wrote
	left        *left           // set if a person has uncordoned the node
	wellSince   time.Time

	did, told map[string]bool // records of cordons and uncordons
	lost      map[string]bool // records that can no longer be made
	guesses   int             // cordons that may be recorded in another session
	seq       int64

	seen []*corev1.Node // versions of the node since the last write of the controller
}

// left means that a person wants the node left alone.
type left struct {
	at   time.Time
	keys []string
}

func newOracle(t tester) *oracle {
	o := &oracle{
		fixture: newFixture(t), taints: map[string]bool{}, off: map[string]bool{}, unproven: map[string]bool{},
		did: map[string]bool{}, told: map[string]bool{}, lost: map[string]bool{},
	}
	o.judge = o.wrote
	return o
}

func keysOf(faults []v1alpha1.Fault) []string {
	var keys []string
	for _, f := range faults {
		keys = append(keys, nodefault.KeyOf(f))
	}
	return keys
}

// wrote verifies a write of the controller.
func (o *oracle) wrote(before, after *corev1.Node) {
	o.t.Helper()
	if o.cfg.DryRun {
		o.t.Fatalf("dry run wrote the node")
	}
	if before.Labels[v1alpha1.LabelOptOut] == v1alpha1.OptedOut {
		if _, marked := quarantine.OwnedOf(after); marked && o.cordonedBy != we {
			o.t.Fatalf("a node that was opted out was marked")
		}
	}
	o.judgeFlag(before, after)
	o.judgeTaints(before, after)
	if diff := cmp.Diff(theirs(before), theirs(after)); diff != "" {
		o.t.Fatalf("what is not ours was changed (-before +after)\n%s", diff)
	}
}

// theirs returns the labels and annotations that the controller must not write.
func theirs(n *corev1.Node) map[string]string {
	all := maps.Clone(n.Annotations)
	maps.Copy(all, n.Labels)
	for _, ours := range []string{v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden, v1alpha1.LabelPhase} {
		delete(all, ours)
	}
	return all
}

func (o *oracle) judgeFlag(before, after *corev1.Node) {
	o.t.Helper()
	is, _ := quarantine.OwnedOf(after)
	if is.Session != "" && is.Session != o.session {
		o.session, o.off = is.Session, map[string]bool{}
	}
	switch {
	case before.Spec.Unschedulable && !after.Spec.Unschedulable:
		if o.cordonedBy != we {
			o.t.Fatalf("the cordon of %q was taken off", o.cordonedBy)
		}
		o.uncordoned(after)
	case !before.Spec.Unschedulable && after.Spec.Unschedulable:
		switch {
		case o.denial != "":
			o.t.Fatalf("a node was cordoned beyond the budget")
		case o.left != nil:
			o.t.Fatalf("the node was cordoned that a person uncordoned at %s with %v; now %v", o.left.at, o.left.keys, keysOf(o.faults))
		case before.Labels[v1alpha1.LabelOptOut] == v1alpha1.OptedOut:
			o.t.Fatalf("a node that was opted out was cordoned")
		}
		o.cordonedBy = we
		o.did[nodefault.RecordID(after.UID, is.Session, changeevent.ActionCordon, "")] = true
	}
}

// uncordoned records an uncordon of the controller, according to the tombstone.
func (o *oracle) uncordoned(after *corev1.Node) {
	var tomb struct {
		Session string
		Orphan  bool
	}
	if err := json.Unmarshal([]byte(after.Annotations[v1alpha1.AnnotationReleased]), &tomb); err != nil {
		o.t.Fatalf("uncordoned without a tombstone: %v", err)
	}
	o.cordonedBy = nobody
	if tomb.Orphan && o.status.Owned != nil {
		tomb.Session = o.status.Owned.Session
	}
	o.did[nodefault.RecordID(after.UID, tomb.Session, changeevent.ActionUncordon, "")] = true
}

func (o *oracle) judgeTaints(before, after *corev1.Node) {
	o.t.Helper()
	for _, t := range before.Spec.Taints {
		if name := t.ToString(); !slices.Contains(after.Spec.Taints, t) {
			if !o.taints[name] && !o.unproven[name] {
				o.t.Fatalf("the taint %s is not ours and was taken off", name)
			}
			delete(o.taints, name)
			delete(o.unproven, name)
		}
	}
	for _, t := range after.Spec.Taints {
		if name := t.ToString(); !slices.Contains(before.Spec.Taints, t) {
			if o.off[name] {
				o.t.Fatalf("the taint %s was put back that a person has taken off", name)
			}
			o.taints[name] = true
		}
	}
}

// look makes a step of the controller, and verifies its records.
func (o *oracle) look(seen *corev1.Node, what fate) quarantine.Step {
	o.t.Helper()
	s := o.step(seen, what)
	o.judgeTold()
	o.note()
	return s
}

func (o *oracle) judgeTold() {
	o.t.Helper()
	for _, r := range o.status.History {
		if r.Sequence <= o.seq {
			continue
		}
		o.seq = r.Sequence
		if r.DryRun || r.Action != changeevent.ActionCordon && r.Action != changeevent.ActionUncordon {
			continue
		}
		switch {
		case o.told[r.ID]:
			o.t.Fatalf("%s of session %s was told twice", r.Action, r.Session)
		case o.did[r.ID]:
		case r.Action == changeevent.ActionCordon && o.guesses > 0:
			o.guesses--
			o.did[r.ID] = true
		default:
			o.t.Fatalf("%s of session %s was told and not done", r.Action, r.Session)
		}
		o.told[r.ID] = true
	}
}

// note updates the oracle with the time and the faults.
func (o *oracle) note() {
	if o.node != nil {
		o.seen = append(o.seen, o.node.DeepCopy())
		verdict, _ := o.rules.Decide(o.node, o.faults, o.now)
		switch {
		case verdict.Unsure || nodefault.RequiresAction(verdict.DesiredActions) && !verdict.DesiredActions.DryRun:
			o.wellSince = time.Time{}
		case o.wellSince.IsZero():
			o.wellSince = o.now
		}
	}
	if o.left == nil {
		return
	}
	fresh := slices.ContainsFunc(keysOf(o.faults), func(key string) bool { return !slices.Contains(o.left.keys, key) })
	well := !o.wellSince.IsZero() && o.now.Sub(o.wellSince) >= healthyFor
	if fresh || well || o.now.Sub(o.left.at) >= overrideTTL {
		o.left = nil
	}
}

// personUncordons simulates a person who wants the node in service, regardless of the
// quarantine.
func (o *oracle) personUncordons() {
	// A cordon between two looks was never visible.
	var mark struct{ Cordon, Foreign bool }
	owned, marked := quarantine.OwnedOf(o.node)
	if known := o.status.Overridden; known != nil && known.Session == owned.Session {
		marked = false // dry run keeps the mark of an ended session
	}
	if err := json.Unmarshal([]byte(o.node.Annotations[v1alpha1.AnnotationOwned]), &mark); marked && err != nil {
		o.t.Fatalf("read the mark: %v", err)
	}
	if marked && (mark.Cordon || mark.Foreign) && o.node.Spec.Unschedulable {
		o.left = &left{at: o.now, keys: keysOf(o.faults)}
	}
	o.uncordon()
	o.cordonedBy = nobody
	o.note()
}

func (o *oracle) personCordons(applies bool) {
	if applies {
		o.apply()
		o.cordonedBy = they
	} else if o.cordon(); o.cordonedBy == nobody {
		o.cordonedBy = they
	}
	o.note()
}

func (o *oracle) personUntaints(key string) {
	for _, t := range o.node.Spec.Taints {
		name := t.ToString()
		if t.Key != key {
			continue
		}
		if o.taints[name] {
			o.off[name] = true
		}
		delete(o.taints, name)
		delete(o.unproven, name)
	}
	o.untaint(key)
	o.note()
}

// personWrites sets or removes an annotation of the controller like a person.
func (o *oracle) personWrites(key, value string) {
	if _, there := o.node.Annotations[key]; !there && value == "" {
		return
	}
	switch key {
	case v1alpha1.AnnotationOwned:
		o.destroyed()
	case v1alpha1.AnnotationReleased:
		o.forget()
	case v1alpha1.AnnotationOverridden:
		if value == "" {
			o.left, o.off = nil, map[string]bool{}
		}
	}
	o.annotate(key, value)
	o.note()
}

// destroyed handles the loss of the mark. Changes that the status does not know either
// are forgotten, except the cordon, which the managed fields show.
func (o *oracle) destroyed() {
	owned, marked := quarantine.OwnedOf(o.node)
	if !marked {
		return
	}
	o.guesses++
	o.off = map[string]bool{}
	keep := map[string]bool{}
	if known := o.status.Owned; known != nil && known.Session == owned.Session {
		for _, t := range known.Taints {
			keep[t.ToString()] = true
		}
		if known.Cordon != owned.Cordon {
			o.left = nil
		}
	} else {
		o.left = nil
	}
	o.doubt(keep)
	o.forget()
}

// doubt handles the loss of the records of all taints except those in keep.
func (o *oracle) doubt(keep map[string]bool) {
	maps.DeleteFunc(o.taints, func(name string, _ bool) bool {
		if !keep[name] {
			o.unproven[name] = true
		}
		return !keep[name]
	})
}

// forget drops actions that were not recorded yet.
func (o *oracle) forget() {
	for id := range o.did {
		if !o.told[id] {
			o.lost[id] = true
		}
	}
}

// loseStatus deletes and recreates the NodeFault.
func (o *oracle) loseStatus() {
	if _, marked := quarantine.OwnedOf(o.node); !marked {
		o.doubt(nil)
		o.left = nil
		o.guesses++
	}
	o.status, o.seq, o.told = v1alpha1.NodeFaultStatus{}, 0, map[string]bool{}
	o.forget()
}

func (o *oracle) replaceNode() {
	o.forget()
	o.join()
	o.taints, o.unproven, o.off = map[string]bool{}, map[string]bool{}, map[string]bool{}
	o.left, o.cordonedBy, o.seen = nil, nobody, nil
	o.note()
}

// personReleases uses the release command.
func (o *oracle) personReleases(override bool) {
	node, took := quarantine.Release(o.node.DeepCopy(), o.now, "by hand", override)
	if !took {
		return
	}
	dry := o.cfg.DryRun
	o.cfg.DryRun = false // dry run applies only to the controller
	o.wrote(o.node, node)
	o.cfg.DryRun, o.left = dry, nil
	if o.status.Owned == nil {
		o.forget() // neither the status nor the node has a record of it
	}
	if override {
		o.left = &left{at: o.now, keys: keysOf(o.faults)}
	}
	o.edit("fleetloop", func(n *corev1.Node) { n.Spec, n.Labels, n.Annotations = node.Spec, node.Labels, node.Annotations })
	o.note()
}

// rest makes steps of the controller until it waits.
func (o *oracle) rest() quarantine.Step {
	o.t.Helper()
	for range 30 {
		if s := o.look(o.node, works); s.Node == nil && s.After != quarantine.AtOnce {
			return s
		}
	}
	o.t.Fatalf("the controller does not come to rest: %+v", o.status)
	return quarantine.Step{}
}

// wantNothingOfOurs verifies that the node has no changes of the controller.
func (o *oracle) wantNothingOfOurs(when string) {
	o.t.Helper()
	_, marked := quarantine.OwnedOf(o.node)
	switch {
	case o.cordonedBy == we:
		o.t.Fatalf("%s: our cordon is left behind", when)
	case len(o.taints) > 0:
		o.t.Fatalf("%s: our taints are left behind: %v", when, o.taints)
	case marked:
		o.t.Fatalf("%s: our mark is left behind", when)
	case o.node.Spec.Unschedulable != (o.cordonedBy == they):
		o.t.Fatalf("%s: unschedulable is %v, cordoned by %q", when, o.node.Spec.Unschedulable, o.cordonedBy)
	}
	for id := range o.did {
		if !o.told[id] && !o.lost[id] {
			o.t.Fatalf("%s: something was done and never told; told are %v", when, o.fixture.told())
		}
	}
}
