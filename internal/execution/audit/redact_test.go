package audit_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// secret is what no record may have.
const secret = "hunter2-Sup3r"

// asked is an execution that ended, of an action with parameters.
func asked(action, parameters string) *v1alpha1.KubernetesExecution {
	ke := newExecution()
	ke.Spec.Action, ke.Spec.Parameters = action, &runtime.RawExtension{Raw: []byte(parameters)}
	enter(ke, v1alpha1.PhaseValidating, 1)
	check(ke, true)
	enter(ke, v1alpha1.PhaseValidated, 2)
	enter(ke, v1alpha1.PhaseExecuting, 3)
	finish(ke, false, 0, 20)
	ke.Status.Reason, ke.Status.Message = v1alpha1.ReasonExecutionFailed, "it failed"
	enter(ke, v1alpha1.PhaseFailed, 21)
	return ke
}

// everything is all that is kept of an execution.
func everything(t *testing.T, ke *v1alpha1.KubernetesExecution) string {
	t.Helper()
	text, err := json.Marshal(audit.Records(ke, "local"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoSecretIsKept(t *testing.T) {
	in64 := base64.StdEncoding.EncodeToString([]byte(secret))
	cases := map[string]struct {
		reason, action, parameters string
		kept                       string // that must be there all the same
	}{
		"Inline":         {"values do not belong there, and come all the same", "update_secret", `{"secret":"db","namespace":"shop","data":{"password":"` + secret + `"}}`, `"secret":"db"`},
		"InlineKeyName":  {"data may have members called like names", "update_secret", `{"secret":"db","data":{"name":"` + secret + `","key":"` + secret + `","secret":"` + secret + `","namespace":"` + secret + `"}}`, `"secret":"db"`},
		"InlineFrom":     {"a value in the place of a reference", "update_secret", `{"secret":"db","dataFrom":{"name":"` + secret + `","password":"` + secret + `"}}`, `"secret":"db"`},
		"InlineKey":      {"a value in another place", "update_secret", `{"secret":"db","key":"` + secret + `","value":"` + secret + `"}`, `"secret":"db"`},
		"InlineList":     {"in a list", "update_secret", `{"secret":"db","data":["` + secret + `",{"a":["` + secret + `"]}]}`, `"secret":"db"`},
		"Rotate":         {"any action on Secrets", "rotate_secrets", `{"value":"` + secret + `"}`, `rotate_secrets`},
		"Reference":      {"references are kept", "update_secret", `{"secret":"db","namespace":"shop","dataFrom":{"password":{"secretKeyRef":{"name":"new-db","key":"pw"}}}}`, `"secretKeyRef":{"key":"pw","name":"new-db"}`},
		"Manifest":       {"an object of kind Secret", "apply_manifest", `{"manifest":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","annotations":{"note":"` + secret + `"}},"data":{"a":"` + in64 + `"},"stringData":{"b":"` + secret + `"}}}`, `"name":"db"`},
		"ManifestList":   {"one of many", "apply_manifest", `{"manifests":[{"kind":"ConfigMap","data":{"a":"b"}},{"kind":"secret","stringData":{"b":"` + secret + `"}}]}`, `"a":"b"`},
		"ManifestJSON":   {"as a text", "apply_manifest", `{"manifest":"{\"kind\":\"Secret\",\"stringData\":{\"b\":\"` + secret + `\"}}"}`, `\"Secret\"`},
		"ManifestNested": {"as a text in a text", "apply_manifest", `{"manifest":"{\"patch\":\"{\\\"kind\\\":\\\"Secret\\\",\\\"stringData\\\":{\\\"b\\\":\\\"` + secret + `\\\"}}\"}"}`, `"manifest"`},
		"ManifestYAML":   {"as a text of several", "apply_manifest", `{"manifest":"kind: ConfigMap\n---\nkind: Secret\nstringData:\n  b: ` + secret + `\n"}`, `"manifest"`},
		"Environment":    {"a variable is called so", "patch_deployment", `{"deployment":"web","patch":{"spec":{"containers":[{"env":[{"name":"DB_PASSWORD","value":"` + secret + `"},{"name":"COLOUR","value":"blue"}]}]}}}`, `"value":"blue"`},
		"PatchPath":      {"a path is called so", "patch_deployment", `{"deployment":"web","patch":"[{\"op\":\"replace\",\"path\":\"/spec/password\",\"value\":\"` + secret + `\"}]"}`, `/spec/password`},
		"PatchValue":     {"a path says nothing of the name", "patch_deployment", `{"deployment":"web","patch":[{"op":"replace","path":"/spec/containers/0/env/3/value","value":"` + secret + `"}]}`, `/env/3/value`},
		"ConfigKey":      {"a key is called so", "patch_configmap", `{"configmap":"web","data":{"api-key":"` + secret + `","colour":"blue"}}`, `"colour":"blue"`},
		"ConfigSecret":   {"even so", "patch_configmap", `{"configmap":"web","data":{"secret":"` + secret + `","colour":"blue"}}`, `"colour":"blue"`},
		"ConfigFile":     {"a line of a file", "patch_configmap", `{"configmap":"web","data":{"app.properties":"colour=blue\ndb.password=` + secret + `\n"}}`, `colour=blue`},
		"ConfigYAML":     {"a line of a file", "patch_configmap", `{"configmap":"web","data":{"app.yaml":"colour: blue\ntoken: \"` + secret + `\"\n"}}`, `colour: blue`},
		"URL":            {"a login in a URL", "patch_configmap", `{"configmap":"web","data":{"database":"postgres://web:` + secret + `@db:5432/shop"}}`, `@db:5432/shop`},
		"PrivateKey":     {"a key", "patch_configmap", `{"configmap":"web","data":{"tls":"-----BEGIN RSA PRIVATE KEY-----\n` + secret + `\n-----END RSA PRIVATE KEY-----\nafter"}}`, `after`},
		"CutPrivateKey":  {"a key without its end", "patch_configmap", `{"configmap":"web","data":{"tls":"-----BEGIN PRIVATE KEY-----\n` + secret + `"}}`, `configmap`},
		"Token":          {"a token", "patch_configmap", `{"configmap":"web","data":{"x":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI` + secret + `.c2ln"}}`, `configmap`},
		"Bearer":         {"a header", "notify_only", `{"message":"Authorization is Bearer ` + secret + `"}`, `message`},
		"Basic":          {"a login in a header", "patch_configmap", `{"configmap":"web","data":{"header":"Authorization: Basic ` + in64 + `\nAccept: text/plain"}}`, `Accept: text/plain`},
		"Flag":           {"a word of a command is called so, and the next is the value", "patch_deployment", `{"deployment":"web","patch":{"spec":{"containers":[{"args":["--db-password","` + secret + `","--verbose","blue"]}]}}}`, `"--verbose","blue"`},
		"FlagInText":     {"the same in a line", "patch_deployment", `{"deployment":"web","patch":{"spec":{"containers":[{"command":["sh","-c","run --token ` + secret + ` --colour blue"]}]}}}`, `--colour blue`},
		"BadJSON":        {"what cannot be read", "notify_only", `{"message":"` + secret, `redacted`},
		"MemberName":     {"a known one as a name", "update_secret", `{"secret":"db","data":{"a":"` + secret + `"},"` + secret + `":1}`, `"secret":"db"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := everything(t, asked(tc.action, tc.parameters))
			var plain strings.Builder
			for _, r := range audit.Records(asked(tc.action, tc.parameters), "local") {
				plain.Write(r.Payload)
				plain.WriteString(r.Action)
			}
			for _, s := range []string{secret, in64, strings.ToUpper(secret)} {
				if strings.Contains(got, s) || strings.Contains(plain.String(), s) {
					t.Errorf("%s: kept %q in %s", tc.reason, s, got)
				}
			}
			if !strings.Contains(plain.String(), tc.kept) {
				t.Errorf("%s: %s is not there: %s", tc.reason, tc.kept, plain.String())
			}
		})
	}
}

// TestNoMessageRepeatsASecret verifies that messages do not repeat values withheld from the
// parameters.
func TestNoMessageRepeatsASecret(t *testing.T) {
	in64 := base64.StdEncoding.EncodeToString([]byte(secret))
	for name, parameters := range map[string]string{
		"Plain":   `{"deployment":"web","env":[{"name":"PASSWORD","value":"` + secret + `"}]}`,
		"Encoded": `{"deployment":"web","env":[{"name":"PASSWORD","value":"` + in64 + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			ke := asked("patch_deployment", parameters)
			said := `invalid value: "` + secret + `" (` + in64 + `)`
			ke.Spec.Reason = said
			ke.Status.Message = said
			ke.Status.ExecutionResults.ErrorMessage = said
			ke.Status.ExecutionResults.PodLogs = said
			ke.Status.ExecutionResults.ResourcesAffected[0].After = said
			ke.Status.ValidationResults.PolicyValidation.Violations = []string{said}
			ke.Status.ValidationResults.PostConditionResults = []v1alpha1.ConditionResult{{ConditionType: "up", ErrorMessage: said}}
			ke.Status.ValidationResults.DryRunResults = &v1alpha1.DryRunResults{Warnings: []string{said}, Errors: []string{said}}
			ke.Status.Plan.Diff = said
			if got := everything(t, ke); strings.Contains(got, secret) || strings.Contains(got, in64) {
				t.Errorf("kept in %s", got)
			}
		})
	}
}

// A value is found in whichever way others spell it, and where only its beginning
// is left.
func TestNoSpellingOfASecretIsKept(t *testing.T) {
	const value = `Sup3r&<hunter2>"so\long` + "\t\u00fc"
	spelled, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ reason, said string }{
		"JSON": {"signs of HTML are escaped", `containers: [{"env":[{"name":"PASSWORD","value":` + string(spelled) + `}]}]`},
		"Bare": {"they are not", `containers: [{"env":[{"name":"PASSWORD","value":"Sup3r&<hunter2>\"so\\long\tü"}]}]`},
		"Go":   {"as errors quote it", fmt.Sprintf("invalid value %q", value)},
		"Cut":  {"it was too long", `containers: [{"env":[{"name":"PASSWORD","value":"Sup3r\u0026\u003chunter2…`},
	} {
		t.Run(name, func(t *testing.T) {
			ke := asked("patch_deployment", `{"deployment":"web","env":[{"name":"PASSWORD","value":`+string(spelled)+`}]}`)
			ke.Status.ExecutionResults.ResourcesAffected[0].After = tc.said
			ke.Status.Message = "it failed: " + tc.said + " and so on"
			if got := everything(t, ke); strings.Contains(got, "hunter2") || strings.Contains(got, "Sup3r") {
				t.Errorf("%s: kept in %s", tc.reason, got)
			}
		})
	}
}

// TestNothingIsToldOfASecret verifies that records of an execution on a Secret keep no data read
// from a server, because the values of a referenced Secret are unknown here.
func TestNothingIsToldOfASecret(t *testing.T) {
	for name, change := range map[string]func(ke *v1alpha1.KubernetesExecution){
		"ByAction": func(*v1alpha1.KubernetesExecution) {},
		"ByTarget": func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.Action = "apply_manifest"
			ke.Status.Plan.Target.Kind = "Secret"
		},
	} {
		t.Run(name, func(t *testing.T) {
			ke := asked("update_secret", `{"secret":"db","dataFrom":{"a":{"secretKeyRef":{"name":"b","key":"c"}}}}`)
			change(ke)
			ke.Spec.Reason = "the old one was leaked"
			ke.Status.Message = secret
			ke.Status.ExecutionResults.ErrorMessage = secret
			ke.Status.ExecutionResults.PodLogs = secret
			ke.Status.ExecutionResults.ResourcesAffected = []v1alpha1.AffectedResource{{Kind: "Secret", Name: "db", Action: "patched", Before: secret, After: secret}}
			ke.Status.ValidationResults.PolicyValidation.Violations = []string{secret}
			ke.Status.ValidationResults.PostConditionResults = []v1alpha1.ConditionResult{{ConditionType: "up", ErrorMessage: secret}}
			ke.Status.ValidationResults.DryRunResults = &v1alpha1.DryRunResults{Warnings: []string{secret}, Errors: []string{secret}}
			ke.Status.RollbackInformation = &v1alpha1.RollbackInformation{Available: true, RollbackAction: "update_secret", RollbackParameters: &runtime.RawExtension{Raw: []byte(`{"data":"` + secret + `"}`)}}
			enter(ke, v1alpha1.PhaseRollbackReady, 22)
			got := everything(t, ke)
			if strings.Contains(got, secret) {
				t.Errorf("kept in %s", got)
			}
			for _, kept := range []string{"the old one was leaked", "patched", "execution_failed"} {
				if !strings.Contains(got, kept) {
					t.Errorf("%q is not there: %s", kept, got)
				}
			}
		})
	}
}

func TestPayloadsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	ke := asked("patch_configmap", `{"configmap":"web","data":{"a":"`+long+`","b":"`+long+`"}}`)
	ke.Spec.Reason, ke.Status.Message, ke.Name = long, long, long
	for range 200 {
		ke.Status.ExecutionResults.ResourcesAffected = append(ke.Status.ExecutionResults.ResourcesAffected, v1alpha1.AffectedResource{Kind: "Pod", Name: long, After: long})
		ke.Status.ValidationResults.PolicyValidation.Violations = append(ke.Status.ValidationResults.PolicyValidation.Violations, long)
		ke.Status.ValidationResults.PostConditionResults = append(ke.Status.ValidationResults.PostConditionResults, v1alpha1.ConditionResult{ConditionType: long, ErrorMessage: long})
	}
	for _, r := range audit.Records(ke, "local") {
		if len(r.Payload) > 8<<10 || len(r.Name) > 512 || !utf8.ValidString(r.Name) || !json.Valid(r.Payload) {
			t.Errorf("%s has %d bytes and a name of %d", r.Type, len(r.Payload), len(r.Name))
		}
		var p struct {
			Violations, Resources []any
			TruncatedFields       []string
		}
		if err := json.Unmarshal(r.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if r.Type == audit.PolicyDecided && (len(p.Violations) == 0 || len(p.TruncatedFields) != 1) {
			t.Errorf("%d violations, and left out is %v", len(p.Violations), p.TruncatedFields)
		}
		if r.Type == audit.Result && (len(p.Resources) == 0 || len(p.TruncatedFields) != 1) {
			t.Errorf("%d resources, and left out is %v", len(p.Resources), p.TruncatedFields)
		}
	}
}

// Whatever the parameters are, the records can be kept: valid, bounded, without
// what the database refuses.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `[]`, `"x"`, `1e999999`, `{"a":1e400}`, `{"a":"\u0000"}`, `{"\u0000":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":123456789012345678901234567890}`,
		strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000), strings.Repeat(`{"a":`, 500) + `1` + strings.Repeat(`}`, 500), `{"kind":"Secret","data":{"a":"b"}}`,
		`{"patch":"[{\"op\":\"add\"}]"}`, `{"a":{"a":1},"a":2}`,
	} {
		f.Add("scale_deployment", s, "message", "who")
		f.Add("update_secret", s, "\x00\xff", "")
	}
	f.Fuzz(func(t *testing.T, action, parameters, message, who string) {
		ke := asked(action, parameters)
		ke.Spec.RequestedBy, ke.Status.Message = who, message
		for _, r := range audit.Records(ke, message) {
			text, err := json.Marshal(r.Payload)
			if err != nil || len(text) > 8<<10 || strings.Contains(string(text), `\u0000`) && !strings.Contains(string(text), `\\u0000`) {
				t.Errorf("payload %s, %v", text, err)
			}
			for _, s := range []string{r.Action, r.ActorID, r.Cluster, r.Reason} {
				if !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) > 512 {
					t.Errorf("%q", s)
				}
			}
		}
	})
}
