package check

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// A shownInput is an Input as conditions see it. The requester writes the conditions and reads their
// messages in the status, so it omits data that the requester may not be allowed to read:
// annotations, the diff, previous values, and all object fields outside fieldsVisibleToConditions.
type shownInput struct {
	execution.Input

	Target    shownTarget    `json:"target"`
	Namespace shownNamespace `json:"namespace"`
	Plan      *shownPlan     `json:"plan,omitempty"`
}

// hiddenField is a field of the embedded type that is left out.
type hiddenField *struct{}

type shownTarget struct {
	execution.InputTarget

	Annotations hiddenField `json:"annotations,omitempty"`
}

type shownNamespace struct {
	execution.InputNamespace

	Annotations hiddenField `json:"annotations,omitempty"`
}

type shownPlan struct {
	*execution.InputPlan

	Diff   hiddenField `json:"diff,omitempty"`
	Before hiddenField `json:"before,omitempty"`
}

// inputVisibleToConditions returns the part of an input that conditions see. live is its target, or nil.
func inputVisibleToConditions(in *execution.Input, live *unstructured.Unstructured) (map[string]json.RawMessage, error) {
	s := shownInput{Input: *in, Target: shownTarget{InputTarget: in.Target}, Namespace: shownNamespace{InputNamespace: in.Namespace}}
	s.Target.Object = map[string]any{}
	if live != nil {
		s.Target.Object = truncatedSpecAndStatus(fieldsVisibleToConditions(live), maxObject)
	}
	if in.Plan != nil {
		s.Plan = &shownPlan{InputPlan: in.Plan}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode condition input: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("encode condition input: %w", err)
	}
	return fields, nil
}

// fieldsVisibleToConditions returns the parts of spec and status that conditions see.
func fieldsVisibleToConditions(live *unstructured.Unstructured) map[string]any {
	allowed, known := shownFields[live.GroupVersionKind().GroupKind().String()]
	if !known {
		allowed = fieldTree{"status": {"conditions": conditionFields}}
	}
	object, _ := allowed.selectFields(live.Object).(map[string]any)
	return object
}

// A fieldTree holds the fields that are shown of an object, or of each object of a list. Nil
// is all that is below.
type fieldTree map[string]fieldTree

// selectFields returns the allowed fields of a value. It shares subtrees that are shown whole with
// the value.
func (f fieldTree) selectFields(value any) any {
	if f == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(f))
		for name, below := range f {
			if inner, ok := v[name]; ok {
				kept[name] = below.selectFields(inner)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, inner := range v {
			kept[i] = f.selectFields(inner)
		}
		return kept
	}
	return nil // text in place of an object
}

// shownFields lists the shown fields of each kind, by its name and group. New
// fields of Kubernetes stay hidden until they are listed here. Free texts are hidden,
// because people and programs write passwords into them: values of variables, commands,
// paths and headers of probes, messages, options of volume drivers.
//
//nolint:gochecknoglobals // a table that nobody writes to
var shownFields = map[string]fieldTree{
	"Deployment.apps": {
		"spec": {
			"replicas": nil, "selector": nil, "template": templateFields, "strategy": nil, "minReadySeconds": nil,
			"paused": nil, "progressDeadlineSeconds": nil, "revisionHistoryLimit": nil,
		},
		"status": workloadStatus,
	},
	"ReplicaSet.apps": {
		"spec":   {"replicas": nil, "selector": nil, "template": templateFields, "minReadySeconds": nil},
		"status": workloadStatus,
	},
	"StatefulSet.apps": {
		"spec": {
			"replicas": nil, "selector": nil, "template": templateFields, "updateStrategy": nil, "minReadySeconds": nil,
			"revisionHistoryLimit": nil, "serviceName": nil, "podManagementPolicy": nil, "ordinals": nil, "persistentVolumeClaimRetentionPolicy": nil,
		},
		"status": workloadStatus,
	},
	"DaemonSet.apps": {
		"spec": {
			"selector": nil, "template": templateFields, "updateStrategy": nil, "minReadySeconds": nil, "revisionHistoryLimit": nil,
		},
		"status": workloadStatus,
	},
	"Pod": {
		"spec": podFields,
		"status": {
			"phase": nil, "reason": nil, "startTime": nil, "qosClass": nil, "nominatedNodeName": nil, "podIP": nil, "hostIP": nil,
			"conditions": conditionFields, "containerStatuses": containerStatus, "initContainerStatuses": containerStatus,
		},
	},
	"Node": {
		"spec":   {"unschedulable": nil, "taints": nil},
		"status": {"capacity": nil, "allocatable": nil, "conditions": conditionFields, "nodeInfo": nil},
	},
	"PersistentVolumeClaim": {
		"spec": {
			"accessModes": nil, "resources": nil, "storageClassName": nil, "volumeMode": nil, "volumeName": nil, "selector": nil,
		},
		"status": {"phase": nil, "accessModes": nil, "capacity": nil, "conditions": conditionFields},
	},
	"HorizontalPodAutoscaler.autoscaling": {
		"spec": {"minReplicas": nil, "maxReplicas": nil, "scaleTargetRef": nil, "metrics": nil, "behavior": nil},
		"status": {
			"currentReplicas": nil, "desiredReplicas": nil, "currentMetrics": nil, "lastScaleTime": nil,
			"observedGeneration": nil, "conditions": conditionFields,
		},
	},
	"NetworkPolicy.networking.k8s.io": {"spec": nil},
}

//nolint:gochecknoglobals // parts of the table above
var (
	conditionFields = fieldTree{
		"type": nil, "status": nil, "reason": nil, "observedGeneration": nil,
		"lastTransitionTime": nil, "lastUpdateTime": nil, "lastProbeTime": nil, "lastHeartbeatTime": nil,
	}
	workloadStatus = fieldTree{
		"replicas": nil, "readyReplicas": nil, "updatedReplicas": nil, "availableReplicas": nil, "unavailableReplicas": nil,
		"terminatingReplicas": nil, "fullyLabeledReplicas": nil, "currentReplicas": nil, "currentRevision": nil, "updateRevision": nil,
		"currentNumberScheduled": nil, "desiredNumberScheduled": nil, "updatedNumberScheduled": nil,
		"numberAvailable": nil, "numberUnavailable": nil, "numberReady": nil, "numberMisscheduled": nil,
		"observedGeneration": nil, "collisionCount": nil, "conditions": conditionFields,
	}
	templateFields = fieldTree{"metadata": {"labels": nil}, "spec": podFields}
	podFields      = fieldTree{
		"nodeName": nil, "nodeSelector": nil, "affinity": nil, "tolerations": nil, "topologySpreadConstraints": nil,
		"serviceAccountName": nil, "automountServiceAccountToken": nil, "imagePullSecrets": nil,
		"priorityClassName": nil, "priority": nil, "preemptionPolicy": nil, "runtimeClassName": nil, "schedulerName": nil,
		"restartPolicy": nil, "terminationGracePeriodSeconds": nil, "activeDeadlineSeconds": nil,
		"hostNetwork": nil, "hostPID": nil, "hostIPC": nil, "securityContext": nil, "overhead": nil, "readinessGates": nil,
		"containers": containerFields, "initContainers": containerFields,
		"volumes": {
			"name": nil, "configMap": nil, "secret": nil, "projected": nil, "downwardAPI": nil, "emptyDir": nil,
			"persistentVolumeClaim": nil, "hostPath": nil, "csi": {"driver": nil, "readOnly": nil},
		},
	}
	containerFields = fieldTree{
		"name": nil, "image": nil, "imagePullPolicy": nil, "restartPolicy": nil, "ports": nil, "resources": nil, "securityContext": nil,
		"env": {"name": nil, "valueFrom": nil}, "envFrom": nil, "volumeMounts": nil, "volumeDevices": nil,
		"livenessProbe": probeFields, "readinessProbe": probeFields, "startupProbe": probeFields,
	}
	probeFields = fieldTree{
		"initialDelaySeconds": nil, "timeoutSeconds": nil, "periodSeconds": nil, "successThreshold": nil, "failureThreshold": nil,
		"terminationGracePeriodSeconds": nil, "tcpSocket": nil, "grpc": nil, "httpGet": {"port": nil, "scheme": nil},
	}
	containerStatus = fieldTree{
		"name": nil, "image": nil, "ready": nil, "started": nil, "restartCount": nil, "state": stateFields, "lastState": stateFields,
	}
	stateFields = fieldTree{
		"running": nil, "waiting": {"reason": nil},
		"terminated": {"exitCode": nil, "signal": nil, "reason": nil, "startedAt": nil, "finishedAt": nil},
	}
)
