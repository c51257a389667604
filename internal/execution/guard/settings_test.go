package guard_test

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

func attacksOnStatus() map[string]attack {
	approve := `{"status":{"approval":{"state":"Approved","required":false}}}`
	create := func(person, name string) try {
		return func(w *fixture, _ string) error { return w.leases(person).create(lease(name)) }
	}
	made := func(w *fixture, _ string) error {
		if err := w.leases(controller).firmly().create(lease(guard.RecordName)); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
	edit := func(person string) try {
		return func(w *fixture, _ string) error {
			return w.leases(person).merge(guard.RecordName, `{"spec":{"holderIdentity":"another"}}`)
		}
	}
	return map[string]attack{
		"RecordMade": {
			"the guard would seem to have had no gap", nil,
			create(pete, guard.RecordName), create(pete, "any-other"),
			[]string{"status/controller"},
			"pete is not the controller: do not change it",
		},
		"RecordEdited": {
			"likewise", nil,
			then(made, edit(pete)), then(made, edit(controller)),
			[]string{"status/controller"},
			"since when the admission policies are in force",
		},
		"RecordDeleted": {
			"all would be asked for approval again", nil,
			then(made, func(w *fixture, _ string) error { return w.leases(pete).remove(guard.RecordName) }),
			then(made, func(w *fixture, _ string) error { return w.leases(controller).onTrial().remove(guard.RecordName) }),
			[]string{"status/controller"},
			"do not change it",
		},
		"RecordDeletedWithAll": {
			"by a request that names none", nil,
			then(made, func(w *fixture, _ string) error { return w.leases(pete).removeAll() }),
			then(made, func(w *fixture, _ string) error { return w.leases(controller).onTrial().removeAll() }),
			[]string{"status/controller", "status/by-request"},
			"do not change it",
		},
		"StatusByRequester": {
			"who asks does not say that it was approved", &given{},
			merges(eve, approve, "status"), merges(controller, approve, "status"),
			[]string{"status/controller"},
			"eve is not the controller",
		},
		"StatusByAdministrator": {
			"who may do everything has not done this", &given{},
			merges(boss, approve, "status"), merges(controller, approve, "status"),
			[]string{"status/controller"},
			"boss is not the controller",
		},
		"StatusPut": {
			"as a whole", &given{},
			func(w *fixture, name string) error { return w.as(eve).put(name, executing, "status") },
			func(w *fixture, name string) error { return w.as(controller).put(name, executing, "status") },
			[]string{"status/controller"},
			"set spec.cancel or spec.finalize to end an execution",
		},
		"StatusByApply": {
			"by another field manager", &given{},
			func(w *fixture, name string) error {
				return w.as(eve).apply(name, called(name, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "status": map[string]any{"phase": "validated"}}), "status")
			},
			func(w *fixture, name string) error {
				return w.as(controller).apply(name, called(name, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "status": map[string]any{"phase": "validated"}}), "status")
			},
			[]string{"status/controller"},
			"eve is not the controller",
		},
		"StatusInAnotherVersion": {
			"the rules are for all versions", &given{},
			func(w *fixture, name string) error { return w.later(eve).merge(name, approve, "status") },
			func(w *fixture, name string) error { return w.later(controller).merge(name, approve, "status") },
			[]string{"status/controller", "match/exact"},
			"eve is not the controller",
		},
		"StatusByImpersonation": {
			"of somebody who is not the controller", &given{},
			merges(likeEve, approve, "status"), merges(controller, approve, "status"),
			[]string{"status/controller"},
			"eve is not the controller",
		},
		"StatusOfAnotherGroup": {
			"another word for the plan that is approved", &given{fourEyes: true, by: rosa},
			merges(eve, `{"status":{"approval":{"state":"Pending","required":true,"requesterCannotApprove":false}}}`, "status"), merges(controller, `{"status":{"message":"x"}}`, "status"),
			[]string{"status/controller"},
			"is not the controller",
		},
	}
}

func lease(name string) map[string]any {
	return map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": name}, "spec": map[string]any{"holderIdentity": "somebody"}}
}

func executing(o *unstructured.Unstructured) {
	if err := unstructured.SetNestedField(o.Object, "executing", "status", "phase"); err != nil {
		panic(err)
	}
}

func attacksOnSettings() map[string]attack {
	set := func(person, name string) try {
		return func(w *fixture, _ string) error { return w.settings(person).create(configMap(name)) }
	}
	edit := func(person string) try {
		return func(w *fixture, name string) error {
			return w.settings(person).merge(name, `{"data":{"key":"another"}}`)
		}
	}
	remove := func(person string) try {
		return func(w *fixture, name string) error { return w.settings(person).remove(name) }
	}
	name := func(by string) try {
		return func(w *fixture, name string) error {
			return w.settings(mona).merge(name, `{"data":{"reason":"fire","by":"`+by+`"}}`)
		}
	}
	opens, says := []string{"settings/administer"}, "the verb administer"
	return map[string]attack{
		"PoliciesMade":   {"none are there, which denies everything", nil, set(pete, "safety-policies"), set(pete, "any-other"), opens, says},
		"PoliciesEdited": {"they say what is allowed", &given{configMap: "safety-policies"}, edit(pete), edit(mona), opens, "pete is not allowed to change ConfigMap safety-policies"},
		"PoliciesByApply": {
			"by another field manager", &given{configMap: "safety-policies"},
			func(w *fixture, name string) error { return w.settings(pete).apply(name, configMap(name)) },
			func(w *fixture, name string) error { return w.settings(mona).apply(name, configMap(name)) },
			opens, says,
		},
		"PoliciesDeleted":    {"nothing would run any more", &given{configMap: "safety-policies"}, remove(pete), remove(mona), opens, says},
		"AllDeleted":         {"a request that names none", &given{configMap: "safety-policies"}, func(w *fixture, _ string) error { return w.settings(pete).removeAll() }, func(w *fixture, _ string) error { return w.settings(mona).removeAll() }, []string{"settings/administer", "settings/by-request"}, says},
		"StopMade":           {"it stops everybody's work", nil, set(pete, "emergency-stop"), set(mona, "emergency-stop"), opens, "which controls executions"},
		"StopEdited":         {"cancel-running is in it", &given{configMap: "emergency-stop"}, edit(pete), edit(gina), opens, says},
		"StopDeleted":        {"work would go on", &given{configMap: "emergency-stop"}, remove(pete), remove(gina), opens, says},
		"StopInAnothersName": {"another would be asked when work can go on", &given{configMap: "emergency-stop"}, name(gina), name(mona), []string{"settings/author"}, "mona is not gina: omit the key"},
		"StopMadeByApprover": {"that is another verb", nil, set(otto, "emergency-stop"), set(gina, "emergency-stop"), nil, "cannot create resource"},
	}
}
