package deploy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	shipped "github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// runHealthCheck runs a script on an object as Argo CD does, and returns the health.
func runHealthCheck(t *testing.T, script, object string) (status, message string) {
	t.Helper()
	var o any
	if err := yaml.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", luaValue(l, o))
	if err := l.DoString(script); err != nil {
		t.Fatalf("%v\n%s", err, object)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %v for %s", l.Get(-1), object)
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

func luaValue(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for name, value := range v {
			table.RawSetString(name, luaValue(l, value))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, value := range v {
			table.Append(luaValue(l, value))
		}
		return table
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	}
	return lua.LNil
}

// readHealthChecks returns the scripts of the example for Argo CD by group and kind.
func readHealthChecks(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/examples/argocd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.ParseObjects(raw)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects: %v", len(objects), err)
	}
	var config struct{ Data map[string]string }
	raw, err = json.Marshal(objects[0])
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]string{}
	for name, script := range config.Data {
		checks[strings.TrimPrefix(name, "resource.customizations.health.")] = script
	}
	return checks
}

// TestArgoHealth covers the health of each kind in each phase that its CRD has.
func TestArgoHealth(t *testing.T) {
	checks := readHealthChecks(t)
	want := map[string]map[string]string{
		"kubernetesexecution.kubernaut.io_KubernetesExecution": {
			"": "Progressing", "validating": "Progressing", "validated": "Progressing", "waiting_approval": "Suspended", "executing": "Progressing",
			"rollback_ready": "Healthy", "completed": "Healthy", "failed": "Degraded",
		},
		"fleetloop.io_NodeFault": {
			"": "Progressing", "Observed": "Healthy", "Pending": "Progressing", "DryRun": "Healthy", "Quarantined": "Progressing", "Draining": "Progressing",
			"Remediating": "Progressing", "Recovering": "Progressing", "Held": "Suspended", "Overridden": "Suspended", "Stuck": "Degraded",
			"Healthy": "Healthy", "Gone": "Healthy",
		},
	}
	kinds := 0
	for _, text := range [][]byte{shipped.SentinelConfigCRD, shipped.KubernetesExecutionCRD, shipped.NodeFaultCRD, shipped.RebootNodeCRD, shipped.TerminateNodeCRD} {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		name := crd.Spec.Group + "_" + crd.Spec.Names.Kind
		script, ok := checks[name]
		if !ok {
			t.Errorf("no health check of %s", name)
			continue
		}
		kinds++
		if got, _ := runHealthCheck(t, script, "metadata: {generation: 1}"); got != "Progressing" {
			t.Errorf("%s without status: %s", name, got)
		}
		for _, phase := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["phase"].Enum {
			got, message := runHealthCheck(t, script, "metadata: {generation: 1}\nstatus: {message: the cause, phase: "+string(phase.Raw)+"}")
			if want := want[name][strings.Trim(string(phase.Raw), `"`)]; got != want || message != "the cause" {
				t.Errorf("%s in phase %s: %q %q, want %q", name, phase.Raw, got, message, want)
			}
		}
	}
	if len(checks) != kinds {
		t.Errorf("%d health checks for %d kinds", len(checks), kinds)
	}
}

// TestArgoHealthOfConditions covers the kinds that have conditions instead of a phase, and outcomes.
func TestArgoHealthOfConditions(t *testing.T) {
	checks := readHealthChecks(t)
	const sentinel, execution = "hyperfleet.redhat.com_SentinelConfig", "kubernetesexecution.kubernaut.io_KubernetesExecution"
	const reboot, terminate = "janitor.dgxc.nvidia.com_RebootNode", "janitor.dgxc.nvidia.com_TerminateNode"
	for name, c := range map[string]struct{ kind, status, want string }{
		"Ready":              {sentinel, "{observedGeneration: 2, conditions: [{type: ConfigValid, status: 'True'}, {type: Ready, status: 'True'}]}", "Healthy"},
		"NotReady":           {sentinel, "{observedGeneration: 2, conditions: [{type: Ready, status: 'False'}]}", "Degraded"},
		"OldSpecRuns":        {sentinel, "{observedGeneration: 1, conditions: [{type: ConfigValid, status: 'False'}, {type: Ready, status: 'True'}]}", "Degraded"},
		"NewSpecPending":     {sentinel, "{observedGeneration: 1, conditions: [{type: ConfigValid, status: 'True'}, {type: Ready, status: 'True'}]}", "Progressing"},
		"ReadyUnknown":       {sentinel, "{observedGeneration: 2, conditions: [{type: Ready, status: Unknown}]}", "Progressing"},
		"ActionFailed":       {execution, "{phase: rollback_ready, outcome: Failed}", "Degraded"},
		"PartiallySucceeded": {execution, "{phase: completed, outcome: PartiallySucceeded}", "Degraded"},
		"Succeeded":          {execution, "{phase: completed, outcome: Succeeded}", "Healthy"},
		"Rebooting":          {reboot, "{startTime: '2026-01-01T00:00:00Z', conditions: [{type: SignalSent, status: 'True'}]}", "Progressing"},
		"Rebooted":           {reboot, "{completionTime: '2026-01-01T00:00:00Z', conditions: [{type: NodeReady, status: 'True'}]}", "Healthy"},
		"RebootFailed":       {reboot, "{completionTime: '2026-01-01T00:00:00Z', conditions: [{type: NodeReady, status: 'False'}]}", "Degraded"},
		"Terminated":         {terminate, "{completionTime: '2026-01-01T00:00:00Z', conditions: [{type: NodeTerminated, status: 'True'}]}", "Healthy"},
		"TerminationFailed":  {terminate, "{completionTime: '2026-01-01T00:00:00Z'}", "Degraded"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := runHealthCheck(t, checks[c.kind], "metadata: {generation: 2}\nstatus: "+c.status); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
