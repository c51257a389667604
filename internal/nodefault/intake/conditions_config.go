package intake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// ConditionConfig configures which states of a node are faults.
type ConditionConfig struct {
	// Presets are the names of built-in lists.
	Presets []string `key:"presets" env:"NODE_FAULT_CONDITION_PRESETS" default:"kubelet,npd,eks,nvsentinel" validate:"dive,oneof=kubelet npd eks nvsentinel" doc:"Built-in lists of node conditions: kubelet (Ready and pressure conditions), npd (node-problem-detector), eks (EKS node monitoring agent), nvsentinel (conditions that the NVSentinel Kubernetes connector writes)."`

	Conditions []NodeCondition `key:"conditions" validate:"dive" doc:"Additional node conditions. An entry replaces the condition of the same type in a preset."`

	Resources []NodeResource `key:"resources" validate:"dive" doc:"Extended resources whose allocatable amount must equal the capacity. Device plugins remove broken devices from the allocatable amount."`
}

// A NodeCondition defines when a node condition is unhealthy.
type NodeCondition struct {
	Type string `key:"type" validate:"required" doc:"Type of the condition, such as KernelDeadlock."`

	// UnhealthyStatus is required, because some conditions are unhealthy when True and
	// others when False.
	UnhealthyStatus []corev1.ConditionStatus `key:"unhealthy_status" alias:"unhealthyStatus" validate:"required,dive,oneof=True False Unknown" doc:"Unhealthy statuses of the condition: True, False, Unknown or several of them."`

	For time.Duration `key:"for" default:"0s" validate:"gte=0" doc:"Minimum duration of the unhealthy status."`

	ErrorCode string `key:"error_code" alias:"errorCode" validate:"max=64" doc:"Error code of the fault; empty means the reason of the condition."`

	RecommendedAction v1alpha1.RecommendedAction `key:"recommended_action" alias:"recommendedAction" validate:"max=64" doc:"Recommended action, such as RESTART_VM; empty means none."`

	Fatal bool `key:"fatal" default:"false" doc:"Whether the node cannot run workloads."`

	ComponentClass string `key:"component_class" alias:"componentClass" validate:"max=64" doc:"Class of the component, such as GPU."`
}

// A NodeResource is an extended resource to check.
type NodeResource struct {
	Resource corev1.ResourceName `key:"resource" validate:"required" doc:"Name of the resource, such as nvidia.com/gpu."`

	For time.Duration `key:"for" default:"5m" validate:"gte=0" doc:"Minimum duration of the shortfall. A device plugin that restarts removes all devices for a moment."`

	ErrorCode string `key:"error_code" alias:"errorCode" default:"ResourceShortfall" validate:"max=64" doc:"Error code of the fault."`

	RecommendedAction v1alpha1.RecommendedAction `key:"recommended_action" alias:"recommendedAction" validate:"max=64" doc:"Recommended action, such as RESTART_VM; empty means none."`

	Fatal bool `key:"fatal" default:"false" doc:"Whether the node cannot run workloads."`

	ComponentClass string `key:"component_class" alias:"componentClass" validate:"max=64" doc:"Class of the component, such as GPU."`
}

// DefaultConditionConfig returns the default configuration.
func DefaultConditionConfig() ConditionConfig {
	return ConditionConfig{Presets: []string{"kubelet", "npd", "eks", "nvsentinel"}}
}

// NewConditionSet validates a configuration and creates a ConditionSet.
func NewConditionSet(cfg ConditionConfig) (*ConditionSet, error) {
	s := &ConditionSet{conditions: map[corev1.NodeConditionType]NodeCondition{}}
	for _, name := range cfg.Presets {
		if name == presetNVSentinel {
			s.connector = true
			continue
		}
		list, err := presetConditions(name)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			s.conditions[corev1.NodeConditionType(c.Type)] = c
		}
	}
	var errs []error
	for i, c := range cfg.Conditions {
		isDuplicate := slices.ContainsFunc(cfg.Conditions[:i], func(o NodeCondition) bool { return o.Type == c.Type })
		if err := c.validate(isDuplicate); err != nil {
			errs = append(errs, fmt.Errorf("conditions[%d]: %w", i, err))
		}
		s.conditions[corev1.NodeConditionType(c.Type)] = c
	}
	for i, r := range cfg.Resources {
		isDuplicate := slices.ContainsFunc(s.resources, func(o NodeResource) bool { return o.Resource == r.Resource })
		if r.Resource == "" || isDuplicate {
			errs = append(errs, fmt.Errorf("resources[%d]: resource %q is empty or a duplicate", i, r.Resource))
		}
		s.resources = append(s.resources, r)
	}
	return s, errors.Join(errs...)
}

func (c NodeCondition) validate(isDuplicate bool) error {
	statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
	switch {
	case c.Type == "":
		return errors.New("type missing")
	case isDuplicate:
		return fmt.Errorf("duplicate type %q", c.Type)
	case len(c.UnhealthyStatus) == 0:
		return fmt.Errorf("unhealthy_status of %q missing: set True, False or Unknown", c.Type)
	}
	for _, s := range c.UnhealthyStatus {
		if !slices.Contains(statuses, s) {
			return fmt.Errorf("unhealthy_status of %q is %q: use True, False or Unknown", c.Type, s)
		}
	}
	return nil
}

// presetNVSentinel is the preset for the conditions of NVSentinel's connector.
const presetNVSentinel = "nvsentinel"

// presetConditions returns the conditions of a preset.
func presetConditions(name string) ([]NodeCondition, error) {
	switch name {
	case "kubelet":
		return kubeletPreset(), nil
	case "npd":
		return problemDetectorPreset(), nil
	case "eks":
		return eksMonitoringAgentPreset(), nil
	}
	return nil, fmt.Errorf("unknown preset %q: use one of %s", name, strings.Join(DefaultConditionConfig().Presets, ", "))
}

const (
	longWait   = 30 * time.Minute // as long as the provider itself waits
	mediumWait = 10 * time.Minute
	shortWait  = 5 * time.Minute
)

// kubeletPreset returns the conditions that every node has.
func kubeletPreset() []NodeCondition {
	bad := []corev1.ConditionStatus{corev1.ConditionTrue}
	return []NodeCondition{
		{
			Type:              "Ready",
			UnhealthyStatus:   []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown},
			For:               mediumWait,
			Fatal:             true,
			RecommendedAction: v1alpha1.ActionRestartVM,
		},
		{
			Type:              "NetworkUnavailable",
			UnhealthyStatus:   bad,
			For:               mediumWait,
			Fatal:             true,
			RecommendedAction: v1alpha1.ActionRestartVM,
			ComponentClass:    "Network",
		},
		{Type: "MemoryPressure", UnhealthyStatus: bad, For: mediumWait, ComponentClass: "Memory"},
		{Type: "DiskPressure", UnhealthyStatus: bad, For: mediumWait, ComponentClass: "Storage"},
		{Type: "PIDPressure", UnhealthyStatus: bad, For: mediumWait},
	}
}

// problemDetectorPreset returns the default conditions of node-problem-detector.
func problemDetectorPreset() []NodeCondition {
	bad := []corev1.ConditionStatus{corev1.ConditionTrue}
	return []NodeCondition{
		{Type: "KernelDeadlock", UnhealthyStatus: bad, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Kernel"},
		{Type: "ReadonlyFilesystem", UnhealthyStatus: bad, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Storage"},
		{Type: "XfsShutdown", UnhealthyStatus: bad, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Storage"},
		{Type: "CorruptDockerOverlay2", UnhealthyStatus: bad, Fatal: true, RecommendedAction: v1alpha1.ActionContactSupport, ComponentClass: "Storage"},
		{Type: "CperHardwareErrorFatal", UnhealthyStatus: bad, Fatal: true, RecommendedAction: v1alpha1.ActionContactSupport, ComponentClass: "Hardware"},
		{Type: "KubeletUnhealthy", UnhealthyStatus: bad, For: shortWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM},
		{Type: "ContainerRuntimeUnhealthy", UnhealthyStatus: bad, For: shortWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM},
		{Type: "FrequentKubeletRestart", UnhealthyStatus: bad, For: shortWait},
		{Type: "FrequentDockerRestart", UnhealthyStatus: bad, For: shortWait},
		{Type: "FrequentContainerdRestart", UnhealthyStatus: bad, For: shortWait},
		{Type: "FrequentUnregisterNetDevice", UnhealthyStatus: bad, For: shortWait, ComponentClass: "Network"},
	}
}

// eksMonitoringAgentPreset returns the conditions of the EKS node monitoring agent, which are
// healthy when True.
func eksMonitoringAgentPreset() []NodeCondition {
	bad := []corev1.ConditionStatus{corev1.ConditionFalse}
	return []NodeCondition{
		{
			Type:              "AcceleratedHardwareReady",
			UnhealthyStatus:   bad,
			For:               mediumWait,
			Fatal:             true,
			RecommendedAction: v1alpha1.ActionRestartVM,
			ComponentClass:    "GPU",
		},
		{Type: "ContainerRuntimeReady", UnhealthyStatus: bad, For: longWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM},
		{Type: "KernelReady", UnhealthyStatus: bad, For: longWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Kernel"},
		{Type: "NetworkingReady", UnhealthyStatus: bad, For: longWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Network"},
		{Type: "StorageReady", UnhealthyStatus: bad, For: longWait, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, ComponentClass: "Storage"},
	}
}
