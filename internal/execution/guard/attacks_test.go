package guard_test

import (
	"errors"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An attack is something that is refused, beside what is not.
type attack struct {
	reason string
	given  *given                              // what is there; nil is nothing
	attack func(w *fixture, name string) error // is refused
	twin   func(w *fixture, name string) error // is not, and differs from the attack in what is refused about it

	// opens are the changes of the guard that each let the attack through, by
	// their names in loosened. An attack that has none is refused by more than
	// one rule, or by the schema.
	opens []string
	says  string // a part of what is said, for people
}

// try is what people do.
type try = func(w *fixture, name string) error

// attacks are all there are.
func attacks() map[string]attack {
	all := map[string]attack{}
	for _, some := range []map[string]attack{
		attacksOnRequests(), attacksOnChanges(), attacksOnParts(), attacksOnApprovals(), attacksOnApprovers(), attacksOnStatus(), attacksOnSettings(), attacksWithAssistants(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// asks is to create an execution with more in its spec.
func asks(person string, more map[string]any) try {
	return func(w *fixture, _ string) error { return w.as(person).create(asked(more)) }
}

// merges is to change an execution by a JSON merge patch.
func merges(person, patch string, parts ...string) try {
	return func(w *fixture, name string) error { return w.as(person).merge(name, patch, parts...) }
}

// approves is to add the first approval of an execution, in the name of the
// same person or another.
func approves(person, inTheNameOf string) try { return decides(person, inTheNameOf, "Approve", hash) }

func decides(person, inTheNameOf, decision, planHash string) try {
	return func(w *fixture, name string) error {
		return w.as(person).patch(name, first(text(w.tb, entry(w.user(inTheNameOf), decision, planHash))))
	}
}

// ticks is to set approvalReceived alone.
func ticks(person string) try { return merges(person, `{"spec":{"approvalReceived":true}}`) }

// then is to do one after the other.
func then(steps ...try) try {
	return func(w *fixture, name string) error {
		for _, step := range steps {
			if err := step(w, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// moved is a step of the controller, for good.
func moved(phase string) try {
	return func(w *fixture, name string) error {
		return w.as(controller).firmly().merge(name, `{"status":{"phase":"`+phase+`"}}`, "status")
	}
}

func approvalsOf(w *fixture, persons ...string) map[string]any {
	var list []any
	for _, person := range persons {
		list = append(list, entry(w.user(person), "Approve", hash))
	}
	return map[string]any{"approvals": list}
}

func attacksOnRequests() map[string]attack {
	honest := asks(rita, nil)
	return map[string]attack{
		"BornApproved": {
			"by whoever asks", nil,
			func(w *fixture, _ string) error { return w.as(rita).create(asked(approvalsOf(w, rita))) }, honest,
			[]string{"requests/approvals"},
			"there is no plan to approve yet",
		},
		"BornApprovedByAnother": {
			"whoever that is", nil,
			func(w *fixture, _ string) error { return w.as(rosa).create(asked(approvalsOf(w, adam, anna))) }, asks(rosa, nil),
			[]string{"requests/approvals"},
			"there is no plan to approve yet",
		},
		"BornApprovedUnderAName": {
			"without generateName", nil,
			func(w *fixture, _ string) error {
				return w.as(rita).create(called("with-a-name", asked(approvalsOf(w, rita))))
			},
			func(w *fixture, _ string) error { return w.as(rita).create(called("with-a-name", asked(nil))) },
			[]string{"requests/approvals"},
			"there is no plan to approve yet",
		},
		"BornApprovedByApply": {
			"server-side apply creates, too", nil,
			func(w *fixture, _ string) error {
				return w.as(rita).apply("applied", called("applied", asked(approvalsOf(w, rita))))
			},
			func(w *fixture, _ string) error { return w.as(rita).apply("applied", called("applied", asked(nil))) },
			[]string{"requests/approvals"},
			"there is no plan to approve yet",
		},
		"BornApprovedOnTrial": {
			"a dry run is told what the request would be told", nil,
			func(w *fixture, _ string) error {
				h := w.as(rita)
				h.dryRun = []string{metav1.DryRunAll}
				return h.create(asked(approvalsOf(w, rita)))
			},
			func(w *fixture, _ string) error {
				h := w.as(rita)
				h.dryRun = []string{metav1.DryRunAll}
				return h.create(asked(nil))
			},
			[]string{"requests/approvals"},
			"there is no plan to approve yet",
		},
		"BornApprovedInAnotherVersion": {
			"the API server compares what it converts", nil,
			func(w *fixture, _ string) error {
				o := asked(approvalsOf(w, rita))
				o["apiVersion"] = group + "/" + secondVersion
				return w.later(rita).create(o)
			},
			func(w *fixture, _ string) error {
				o := asked(nil)
				o["apiVersion"] = group + "/" + secondVersion
				return w.later(rita).create(o)
			},
			[]string{"requests/approvals", "match/exact"},
			"there is no plan to approve yet",
		},
		"BornTicked":         {"a yes without a name", nil, asks(rita, map[string]any{"approvalReceived": true}), asks(rita, map[string]any{"approvalReceived": false}), []string{"requests/received"}, "there is no plan to approve yet"},
		"BornCancelled":      {"it would be a trace of nothing", nil, asks(rita, map[string]any{"cancel": true}), honest, []string{"requests/ends"}, "omit them"},
		"BornFinalized":      {"nobody could look at the way back", nil, asks(rita, map[string]any{"finalize": true}), honest, []string{"requests/ends"}, "omit them"},
		"BornWithACanceller": {"nobody has cancelled", nil, asks(rita, map[string]any{"cancelledBy": rita}), honest, []string{"requests/ends"}, "omit them"},
		"GroupOfOthers": {
			"a right could not be withdrawn from who is in no such group", nil,
			asks(rita, map[string]any{"requesterGroups": []any{"system:masters"}}),
			asks(rita, map[string]any{"requesterGroups": []any{"system:authenticated"}}),
			[]string{"requests/groups"},
			"has a group that the requester is not a member of",
		},
		"InAnothersName": {
			"the policy and four eyes go by the name", nil,
			asks(rita, map[string]any{"requestedBy": adam}), asks(rita, map[string]any{"requestedBy": rita}),
			[]string{"requests/requester"},
			"spec.requestedBy is adam, but the request is from rita",
		},
		"RobotInAnothersName": {
			"a service account that is not trusted with it", nil,
			asks(robot, map[string]any{"requestedBy": rita}), asks(portal, map[string]any{"requestedBy": rita}),
			[]string{"requests/requester"},
			"set it to your own user name",
		},
		"ImpersonatorInOwnName": {
			"who impersonates is whom they impersonate", nil,
			asks(likeEve, map[string]any{"action": "restart_pod", "requestedBy": "kubebed-admin"}), asks(likeEve, map[string]any{"action": "restart_pod", "requestedBy": eve}),
			[]string{"requests/requester"},
			"the request is from eve",
		},
		"WithoutTheVerb": {
			"who may create may not ask for everything", nil,
			asks(eve, nil), asks(eve, map[string]any{"action": "restart_pod"}),
			[]string{"requests/execute"},
			"eve is not allowed to request scale_deployment",
		},
		"WithTheVerbElsewhere": {
			"it is of the other namespace", nil,
			asks(otto, nil), honest,
			[]string{"requests/execute"},
			"use a role that grants the verb execute on kubernetesexecutions with the resource name scale_deployment",
		},
		"OfAnAliasWithoutTheVerb": {
			"the right is on the word that is used", nil,
			asks(rita, map[string]any{"action": "scale-deployment"}), honest,
			[]string{"requests/execute"},
			"rita is not allowed to request scale-deployment",
		},
	}
}

func attacksOnChanges() map[string]attack {
	label := merges(eve, `{"metadata":{"labels":{"seen":"yes"},"annotations":{"note":"yes"}}}`)
	return map[string]attack{
		"OtherParameters": {
			"what was approved would not be what is asked for", &given{},
			merges(eve, `{"spec":{"parameters":{"replicas":50}}}`), label,
			[]string{"changes/parameters"},
			"create another execution",
		},
		"OtherParametersByRequester": {
			"not even by who asked", &given{},
			merges(rita, `{"spec":{"parameters":{"namespace":"bank"}}}`), merges(rita, `{"spec":{"parameters":{"replicas":5}}}`),
			[]string{"changes/parameters"},
			"the plan was made for the requested parameters",
		},
		"MoreParameters": {
			"one beside those that there are", &given{},
			merges(eve, `{"spec":{"parameters":{"force":true}}}`), label,
			[]string{"changes/parameters"},
			"spec.parameters is immutable",
		},
		"EmptyParameters": {
			"there are still some", &given{},
			func(w *fixture, name string) error {
				return w.as(eve).patch(name, `[{"op":"replace","path":"/spec/parameters","value":{}}]`)
			}, label,
			[]string{"changes/parameters"},
			"spec.parameters is immutable",
		},
		"NullParameters": {
			"the schema notices, too", &given{},
			func(w *fixture, name string) error {
				return w.as(eve).patch(name, `[{"op":"replace","path":"/spec/parameters","value":null}]`)
			}, label, nil, "spec is immutable",
		},
		"NoParameters": {
			"likewise", &given{}, merges(eve, `{"spec":{"parameters":null}}`), label, nil, "spec is immutable",
		},
		"SomeParameters": {
			"likewise", &given{spec: map[string]any{"parameters": nil}}, merges(eve, `{"spec":{"parameters":{"replicas":1}}}`), label, nil, "spec is immutable",
		},
		"ParametersByApply": {
			"by another field manager", &given{},
			func(w *fixture, name string) error {
				return w.as(eve).apply(name, called(name, asked(map[string]any{"parameters": map[string]any{"replicas": int64(7)}})))
			},
			func(w *fixture, name string) error {
				return w.as(eve).apply(name, called(name, asked(map[string]any{"parameters": map[string]any{"replicas": int64(5)}})))
			},
			[]string{"changes/parameters"},
			"spec.parameters is immutable",
		},
		"ParametersInAnotherVersion": {
			"the rules are for all versions", &given{},
			func(w *fixture, name string) error {
				return w.later(eve).merge(name, `{"spec":{"parameters":{"replicas":50}}}`)
			},
			func(w *fixture, name string) error {
				return w.later(eve).merge(name, `{"metadata":{"labels":{"seen":"yes"}}}`)
			},
			[]string{"changes/parameters", "match/exact"},
			"spec.parameters is immutable",
		},
		"OtherAction": {
			"what the schema can compare it does", &given{},
			merges(rita, `{"spec":{"action":"delete_pod"}}`), label, nil, "spec is immutable",
		},
		"OtherRequester": {
			"or four eyes would be two", &given{by: rosa, fourEyes: true},
			merges(rosa, `{"spec":{"requestedBy":"rita"}}`), label, nil, "spec is immutable",
		},
		"CancelByWatcher":   {"who labels does not stop", &given{}, merges(walt, `{"spec":{"cancel":true}}`), merges(rita, `{"spec":{"cancel":true}}`), []string{"changes/ends", "changes/ends-cancel"}, "walt is not allowed to cancel or finalize"},
		"FinalizeByWatcher": {"who labels does not finish", &given{}, merges(walt, `{"spec":{"finalize":true}}`), merges(adam, `{"spec":{"finalize":true}}`), []string{"changes/ends", "changes/ends-finalize"}, "ask the requester"},
		"CancelInAnothersName": {
			"who asks why it was cancelled would ask the wrong one", &given{},
			merges(adam, `{"spec":{"cancel":true,"cancelledBy":"rita"}}`), merges(adam, `{"spec":{"cancel":true,"cancelledBy":"adam"}}`),
			[]string{"changes/canceller", "changes/canceller-name"},
			"set it to adam together with spec.cancel",
		},
		"CancellerWithoutACancel": {
			"a later cancel of somebody else would bear the name", &given{},
			merges(rita, `{"spec":{"cancelledBy":"rita"}}`), merges(rita, `{"spec":{"cancel":true,"cancelledBy":"rita"}}`),
			[]string{"changes/canceller", "changes/canceller-cancels"},
			"omit it",
		},
		"CancelByApproverOfAnother": {
			"the right to approve is by name, and so is that to cancel", &given{},
			merges(nick, `{"spec":{"cancel":true}}`), merges(adam, `{"spec":{"cancel":true}}`),
			[]string{"changes/ends", "changes/ends-cancel"},
			"is not allowed to cancel",
		},
		"CancelByRequesterOfOther": {
			"who may ask for something else", &given{},
			merges(eve, `{"spec":{"cancel":true}}`), merges(robot, `{"spec":{"cancel":true}}`),
			[]string{"changes/ends", "changes/ends-cancel"},
			"a user with the verb execute on the action",
		},
	}
}

// attacksOnParts are on what all objects have.
func attacksOnParts() map[string]attack {
	takeOff := `{"metadata":{"finalizers":null}}`
	adopt := func(person string, change func(o *metav1.OwnerReference)) try {
		return func(w *fixture, name string) error {
			o := w.parent
			change(&o)
			return w.as(person).merge(name, text(w.tb, map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{o}}}))
		}
	}
	block := adopt(walt, func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = new(true) }) // as the garbage collector does
	return map[string]attack{
		"FinalizerTakenOff": {
			"what was done would not be in the audit", &given{finalizer: true},
			merges(rita, takeOff), merges(controller, takeOff),
			[]string{"changes/finalizer"},
			"delete the execution and wait",
		},
		"FinalizerTakenOffWhileDeleted": {
			"its requester may delete it, and no more", &given{finalizer: true},
			then(func(w *fixture, name string) error { return w.as(rita).firmly().remove(name) }, merges(rita, takeOff)), merges(controller, takeOff),
			[]string{"changes/finalizer"},
			"belongs to the controller",
		},
		"FinalizerReplaced": {
			"by one that nobody takes off", &given{finalizer: true},
			merges(rita, `{"metadata":{"finalizers":["example.com/other"]}}`), merges(rita, `{"metadata":{"finalizers":["kubernaut.io/execution-audit","example.com/other"]}}`),
			[]string{"changes/finalizer"},
			"belongs to the controller",
		},
		"FinalizerOfAnother": {
			"who approves could keep it from being deleted", &given{},
			merges(adam, `{"metadata":{"finalizers":["example.com/mine"]}}`), merges(mona, `{"metadata":{"finalizers":["example.com/mine"]}}`),
			[]string{"changes/finalizers"},
			"adam is not allowed to",
		},
		"FinalizerBesideTheControllers": {
			"likewise", &given{finalizer: true},
			merges(walt, `{"metadata":{"finalizers":["kubernaut.io/execution-audit","example.com/mine"]}}`), merges(controller, `{"metadata":{"finalizers":["kubernaut.io/execution-audit","example.com/mine"]}}`),
			[]string{"changes/finalizers"},
			"add a finalizer",
		},
		"FinalizerTakenOffForGood": {
			"where there is no controller any more there is a verb for it", &given{finalizer: true},
			merges(adam, takeOff), merges(mona, takeOff),
			[]string{"changes/finalizer"},
			"the verb administer",
		},
		"Adopted": {
			"the garbage collector would delete it, for who may not", &given{},
			adopt(walt, func(*metav1.OwnerReference) {}), adopt(rita, func(*metav1.OwnerReference) {}),
			[]string{"changes/owners"},
			"walt is not allowed to",
		},
		"OwnerRenamed": {
			"to one that is missing", &given{owner: true},
			adopt(walt, func(o *metav1.OwnerReference) { o.Name = "nobody" }), block,
			[]string{"changes/owners", "changes/owners-name"},
			"change the owner references",
		},
		"OwnerOfAnotherKind": {
			"likewise", &given{owner: true},
			adopt(walt, func(o *metav1.OwnerReference) { o.Kind = "Secret" }), block,
			[]string{"changes/owners", "changes/owners-kind"},
			"change the owner references",
		},
		"OwnerOfAnotherGroup": {
			"likewise", &given{owner: true},
			adopt(walt, func(o *metav1.OwnerReference) { o.APIVersion = "apps/v1" }), block,
			[]string{"changes/owners", "changes/owners-version"},
			"change the owner references",
		},
		"OwnerOfAnotherUID": {
			"likewise", &given{owner: true},
			adopt(walt, func(o *metav1.OwnerReference) { o.UID = "99999999-2222-3333-4444-555555555555" }), block,
			[]string{"changes/owners", "changes/owners-uid"},
			"change the owner references",
		},
		"OwnerNoController": {
			"the owner would no longer hear of it", &given{owner: true},
			adopt(walt, func(o *metav1.OwnerReference) { o.Controller = nil }), block,
			[]string{"changes/owners", "changes/owners-controller"},
			"change the owner references",
		},
	}
}

// refused is whether an error is a refusal by admission, by the schema or for
// want of a right.
func refused(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
}
