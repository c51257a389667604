package guard_test

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// attacksOnApprovals are on what is approved, when and in whose name.
func attacksOnApprovals() map[string]attack {
	one := func(person string) func(w *fixture) string {
		return func(w *fixture) string { return text(w.tb, entry(w.user(person), "Approve", hash)) }
	}
	return map[string]attack{
		"InAnothersNameApproved": {
			"adam may approve, and not as anna", &given{},
			approves(adam, anna), approves(adam, adam),
			[]string{"approvals/name"},
			"names another approver",
		},
		"InTheNameOfARobot": {
			"or as a service account", &given{},
			approves(adam, robot), approves(robot, robot),
			[]string{"approvals/name"},
			"names another approver",
		},
		"InAnothersNameRejected": {
			"a no has a name, too", &given{},
			decides(adam, anna, "Reject", hash), decides(adam, adam, "Reject", hash),
			[]string{"approvals/name"},
			"names another approver",
		},
		"TwoAtOnce": {
			"a quorum by one person", &given{},
			func(w *fixture, name string) error {
				return w.as(adam).patch(name, first(one(adam)(w)+","+one(anna)(w)))
			}, approves(adam, adam),
			[]string{"approvals/name"},
			"one entry at a time",
		},
		"TwiceInOwnName": {
			"the schema has one entry for each", &given{},
			func(w *fixture, name string) error {
				return w.as(adam).patch(name, first(one(adam)(w)+","+one(adam)(w)))
			}, approves(adam, adam), nil, "Duplicate",
		},
		"AnotherBesideOnes": {
			"once somebody has approved", &given{approvedBy: map[string]string{anna: "Approve"}},
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(rosa)(w))) },
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			[]string{"approvals/name"},
			"names another approver",
		},
		"ByApplyInAnothersName": {
			"with another field manager", &given{},
			func(w *fixture, name string) error {
				return w.as(adam).apply(name, called(name, asked(approvalsOf(w, anna))))
			},
			func(w *fixture, name string) error {
				return w.as(adam).apply(name, called(name, asked(approvalsOf(w, adam))))
			},
			[]string{"approvals/name"},
			"names another approver",
		},
		"ByPutInAnothersName": {
			"the object as a whole", &given{},
			func(w *fixture, name string) error { return w.as(adam).put(name, approvedBy(w.user(anna))) },
			func(w *fixture, name string) error { return w.as(adam).put(name, approvedBy(w.user(adam))) },
			[]string{"approvals/name"},
			"names another approver",
		},
		"ANoTurnedIntoAYes": {
			"the schema keeps what was said", &given{approvedBy: map[string]string{anna: "Reject"}},
			func(w *fixture, name string) error {
				return w.as(adam).patch(name, `[{"op":"replace","path":"/spec/approvals/0/decision","value":"Approve"}]`)
			},
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			nil, "approvals can only be added",
		},
		"OwnNoTurnedIntoAYes": {
			"not even one's own", &given{approvedBy: map[string]string{anna: "Reject"}},
			func(w *fixture, name string) error {
				return w.as(anna).patch(name, `[{"op":"replace","path":"/spec/approvals/0/decision","value":"Approve"}]`)
			},
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			nil, "approvals can only be added",
		},
		"ANoTakenAway": {
			"likewise", &given{approvedBy: map[string]string{anna: "Reject"}},
			merges(adam, `{"spec":{"approvals":null}}`),
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			nil, "approvals can only be added",
		},
		"ANoReplacedByAYes": {
			"by a list with another entry", &given{approvedBy: map[string]string{anna: "Reject"}},
			func(w *fixture, name string) error { return w.as(adam).patch(name, first(one(adam)(w))) },
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			nil, "approvals can only be added",
		},
		"AnothersOfAnOldPlanReplaced": {
			"that is for anna to do", &given{approvedBy: map[string]string{anna: "Approve"}, replanned: true},
			replaces(adam, anna), replaces(anna, anna),
			[]string{"approvals/name"},
			"names another approver",
		},
		"OwnReplacedByOneOfAnOldPlan": {
			"a no would be gone", &given{approvedBy: map[string]string{anna: "Reject"}},
			func(w *fixture, name string) error {
				return w.as(anna).patch(name, `[{"op":"replace","path":"/spec/approvals/0/planHash","value":"`+oldHash+`"}]`)
			},
			func(w *fixture, name string) error { return w.as(adam).patch(name, another(one(adam)(w))) },
			[]string{"approvals/plan"},
			"for a different plan",
		},
		"BeforeThePlan": {
			"nobody has seen what the dry run says", &given{phase: "validating"},
			approves(adam, adam), then(moved("waiting_approval"), approves(adam, adam)),
			[]string{"approvals/phase"},
			"wait for phase waiting_approval",
		},
		"BeforeItWaits": {
			"it may not need one", &given{phase: "validated"},
			approves(adam, adam), then(moved("waiting_approval"), approves(adam, adam)),
			[]string{"approvals/phase"},
			"is not waiting for approval yet",
		},
		"TickedBeforeItWaits": {
			"without a name likewise", &given{phase: "validated"},
			ticks(adam), then(moved("waiting_approval"), ticks(adam)),
			[]string{"approvals/phase", "approvals/ticked"},
			"is not waiting for approval yet",
		},
		"AfterItFailed": {
			"it would look as if it had been approved in time", &given{phase: "failed"},
			approves(adam, adam), merges(adam, `{"metadata":{"labels":{"late":"yes"}}}`),
			[]string{"approvals/phase"},
			"is in phase failed and no longer waiting",
		},
		"TickedWhileItRuns": {
			"likewise", &given{phase: "executing"},
			ticks(adam), merges(adam, `{"spec":{"cancel":true}}`),
			[]string{"approvals/phase", "approvals/ticked"},
			"create another execution if it is still needed",
		},
		"RejectedOnceApproved": {
			"it would have no effect, and its author would believe that the action is stopped", &given{approved: true},
			decides(adam, adam, "Reject", hash), merges(adam, `{"spec":{"cancel":true}}`),
			[]string{"approvals/approved"},
			"set spec.cancel to stop it",
		},
		"OfAnOldPlan": {
			"somebody looked at another", &given{},
			decides(adam, adam, "Approve", oldHash), decides(adam, adam, "Approve", hash),
			[]string{"approvals/plan"},
			"approve its hash, " + hash,
		},
		"OfNoPlan": {
			"or at none", &given{},
			decides(adam, adam, "Approve", ""), decides(adam, adam, "Approve", hash),
			[]string{"approvals/plan"},
			"a different plan than the current one",
		},
		"OfNoPlanWhereThereIsNone": {
			"two empty hashes are not the same plan", &given{noPlan: true},
			decides(adam, adam, "Approve", ""), merges(adam, `{"metadata":{"labels":{"late":"yes"}}}`),
			[]string{"approvals/plan", "approvals/plan-there"},
			"has no plan to approve yet",
		},
		"TickedWhereThereIsNoPlan": {
			"nobody can have looked at one", &given{noPlan: true},
			ticks(adam), merges(adam, `{"metadata":{"labels":{"late":"yes"}}}`),
			[]string{"approvals/plan", "approvals/plan-there", "approvals/ticked"},
			"has no plan to approve yet",
		},
	}
}

// newHash is of a plan after given.
const newHash = "3333333333333333333333333333333333333333333333333333333333333333"

// replaces is to put an approval of the new plan in the place of the first.
func replaces(person, inTheNameOf string) try {
	return func(w *fixture, name string) error {
		return w.as(person).patch(name, first(text(w.tb, entry(w.user(inTheNameOf), "Approve", newHash))))
	}
}

// attacksOnApprovers are on who approves.
func attacksOnApprovers() map[string]attack {
	return map[string]attack{
		"ByWhoMayNot": {
			"to write executions is not to approve them", &given{},
			approves(eve, eve), approves(adam, adam),
			[]string{"approvals/approve"},
			"eve is not allowed to approve or reject",
		},
		"ByWhoMayNotInAnotherVersion": {
			"the rules are for all versions", &given{},
			func(w *fixture, name string) error {
				return w.later(eve).patch(name, first(text(w.tb, entry(eve, "Approve", hash))))
			},
			func(w *fixture, name string) error {
				return w.later(adam).patch(name, first(text(w.tb, entry(adam, "Approve", hash))))
			},
			[]string{"approvals/approve", "match/exact"},
			"eve is not allowed to approve or reject",
		},
		"ByWhoMayNotOnTrial": {
			"a dry run is told the same", &given{},
			func(w *fixture, name string) error {
				h := w.as(eve)
				h.dryRun = []string{"All"}
				return h.merge(name, `{"spec":{"approvalReceived":true}}`)
			},
			func(w *fixture, name string) error {
				h := w.as(adam)
				h.dryRun = []string{"All"}
				return h.merge(name, `{"spec":{"approvalReceived":true}}`)
			},
			[]string{"approvals/approve", "approvals/ticked"},
			"eve is not allowed to approve or reject",
		},
		"TickedByWhoMayNot": {
			"a yes without a name needs the same right", &given{},
			ticks(eve), ticks(adam),
			[]string{"approvals/approve", "approvals/ticked"},
			"use a role that grants the verb approve",
		},
		"RejectedByWhoMayNot": {
			"and so does a no", &given{},
			decides(eve, eve, "Reject", hash), decides(adam, adam, "Reject", hash),
			[]string{"approvals/approve"},
			"eve is not allowed to approve or reject",
		},
		"WithTheVerbElsewhereApproved": {
			"it is of the other namespace", &given{},
			approves(otto, otto), approves(adam, adam),
			[]string{"approvals/approve"},
			"otto is not allowed to approve",
		},
		"WithTheVerbOnAnother": {
			"it is of the execution of another name", &given{name: "unnamed"},
			approves(nick, nick), approves(adam, adam),
			[]string{"approvals/approve"},
			"nick is not allowed to approve or reject unnamed",
		},
		"WithTheVerbOnThis": {
			"with the right on one name that one can be approved", &given{name: "named"},
			approves(eve, eve), approves(nick, nick),
			[]string{"approvals/approve"},
			"eve is not allowed to approve or reject named",
		},
		"ByAnAccountThatMayNot": {
			"a service account is a user like any other", &given{},
			approves(plain, plain), approves(robot, robot),
			[]string{"approvals/approve"},
			":plain is not allowed to approve",
		},
		"ByTheController": {
			"it does, and does not decide", &given{},
			approves(controller, controller), approves(adam, adam),
			[]string{"approvals/approve"},
			":controller is not allowed to approve",
		},
		"ByImpersonation": {
			"of somebody who may not, by somebody who may", &given{},
			approves(likeEve, likeEve), approves(likeAdam, likeAdam),
			[]string{"approvals/approve"},
			"eve is not allowed to approve",
		},
		"InOwnNameAsAnother": {
			"the name is of whom one impersonates", &given{},
			func(w *fixture, name string) error {
				return w.as(likeAdam).patch(name, first(text(w.tb, entry("kubebed-admin", "Approve", hash))))
			}, approves(likeAdam, adam),
			[]string{"approvals/name"},
			"the request is from adam",
		},
		"ByTheRequester": {
			"four eyes", &given{by: rosa, fourEyes: true},
			approves(rosa, rosa), approves(adam, adam),
			[]string{"approvals/eyes"},
			"rosa requested it: ask another person to approve",
		},
		"ByTheRequesterWhereOneWillDo": {
			"two eyes are enough where the policy says so; the other one has four", &given{by: rosa, fourEyes: true},
			approves(rosa, rosa), then(func(w *fixture, _ string) error {
				return approves(rosa, rosa)(w, given{by: rosa}.make(w))
			}),
			[]string{"approvals/eyes"},
			"the requester is excluded from approving",
		},
		"TickedByTheRequester": {
			"without a name likewise", &given{by: rosa, fourEyes: true},
			ticks(rosa), ticks(adam),
			[]string{"approvals/eyes", "approvals/ticked"},
			"rosa requested it",
		},
		"ByTheAccountThatAsked": {
			"a service account has two eyes", &given{by: robot, fourEyes: true},
			approves(robot, robot), approves(adam, adam),
			[]string{"approvals/eyes"},
			":robot requested it",
		},
		"ByWhoAskedNamingNobody": {
			"who leaves the name out is not somebody else", &given{by: rosa, fourEyes: true, anonymous: true},
			approves(rosa, rosa), func(w *fixture, _ string) error {
				return approves(adam, adam)(w, given{by: rosa, fourEyes: true}.make(w))
			},
			[]string{"approvals/eyes", "approvals/eyes-unknown"},
			"create it again with spec.requestedBy",
		},
		"ByThePortalThatAsked": {
			"who is a trusted requester has asked", &given{by: portal, spec: map[string]any{"requestedBy": rita}, fourEyes: true},
			approves(portal, portal), approves(adam, adam),
			[]string{"approvals/eyes", "approvals/eyes-portal"},
			"is a trusted requester",
		},
		"ByTheAdministratorThatAsked": {
			"who may do everything has two eyes", &given{by: boss, fourEyes: true},
			approves(boss, boss), approves(adam, adam),
			[]string{"approvals/eyes"},
			"boss requested it",
		},
		"AdministratorInAnothersName": {
			"who may do everything is one person", &given{},
			approves(boss, adam), approves(boss, boss),
			[]string{"approvals/name"},
			"names another approver",
		},
		"OfTheWrongGroup": {
			"the policy names who it takes", &given{groups: []string{"oncall", "leads"}},
			approves(anna, anna), approves(adam, adam),
			[]string{"approvals/groups"},
			"must be in group oncall or leads, and anna is not",
		},
		"TickedByTheWrongGroup": {
			"without a name likewise", &given{groups: []string{"oncall"}},
			ticks(anna), ticks(adam),
			[]string{"approvals/groups", "approvals/ticked"},
			"ask a member to approve",
		},
		"OfTheRightGroupWithoutTheVerb": {
			"a group is not a right", &given{groups: []string{"system:authenticated"}},
			approves(eve, eve), approves(adam, adam),
			[]string{"approvals/approve"},
			"eve is not allowed to approve",
		},
	}
}

// approvedBy adds an approval to an object.
func approvedBy(user string) func(o *unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedSlice(o.Object, []any{entry(user, "Approve", hash)}, "spec", "approvals"); err != nil {
			panic(err)
		}
	}
}
