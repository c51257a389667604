package nodefaultapp_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/nodefaultapp"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A block is a configuration that the operator's page shows.
type block struct{ kind, text string }

func configBlocks(t *testing.T) []block {
	t.Helper()
	page, err := os.ReadFile("../../../docs/how-to/repair-nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range regexp.MustCompile("(?s)```yaml ([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// oneBlock is the only block of a kind, read.
func oneBlock(t *testing.T, kind string) nodefaultapp.Config {
	t.Helper()
	all := slices.DeleteFunc(configBlocks(t), func(b block) bool { return b.kind != kind })
	if len(all) != 1 {
		t.Fatalf("the page shows %d blocks %q", len(all), kind)
	}
	cfg, err := loadConfig(t, all[0].text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// loadConfig reads a configuration as the binary does.
func loadConfig(t *testing.T, text string) (nodefaultapp.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node-faults.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := nodefaultapp.OverriddenDefaults()
	_, err := settings.Load(&cfg, settings.Source{File: file})
	return cfg, err
}

// TestPageShowsSettings has each configuration of the page taken by the binary,
// which says that it is in force, and by those that the binary does not ask.
func TestPageShowsSettings(t *testing.T) {
	all := configBlocks(t)
	if len(all) < 11 {
		t.Fatalf("the page shows %d configurations", len(all))
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("5bc0"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := showConfig(t, "roles: [controller, intake, janitor]\n")
	for i, b := range all {
		t.Run(fmt.Sprintf("%d-%s", i+1, b.kind), func(t *testing.T) {
			text := regexp.MustCompile(`/var/run/secrets/\S+`).ReplaceAllString(b.text, secret)
			if showConfig(t, text) == plain && !strings.Contains(text, "manual") { // which is the default
				t.Errorf("it says nothing:\n%s", text)
			}
			cfg, err := loadConfig(t, text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := intake.NewConditionSet(cfg.Conditions); err != nil {
				t.Error(err)
			}
			if _, err := budget.New(cfg.Budget, func() []*corev1.Node { return nil }, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// showConfig is what "config show" prints of a configuration.
func showConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node-faults.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := nodefaultapp.NewCommand(&out, io.Discard, func(string) (string, bool) { return "", false })
	cmd.SetArgs([]string{"config", "show", "--config", file})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out.String()
}

// TestPageShowsWhatIsShipped holds the rules that the page says are shipped to
// those that are.
func TestPageShowsWhatIsShipped(t *testing.T) {
	want := rules.Defaults()
	got := oneBlock(t, "shipped").Rules
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shipped (-) and shown (+):\n%s", diff)
	}
	if fmt.Sprint(quarantine.DefaultHealthyFor, quarantine.DefaultOverrideTTL) != "5m0s 24h0m0s" || budget.Default().MaxPercent != 10 || budget.Default().WindowMaxPercent != 5 {
		t.Error("the page says other defaults")
	}
}

// TestPageShowsRules holds what the page says of the rules that it shows.
func TestPageShowsRules(t *testing.T) {
	set, err := rules.Compile(oneBlock(t, "rules").Rules)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	fault := func(age time.Duration, change func(*v1alpha1.Fault)) v1alpha1.Fault {
		f := v1alpha1.Fault{Source: "monitor", Check: "check", DetectedAt: metav1.NewMicroTime(now.Add(-age))}
		change(&f)
		return f
	}
	xid := func(f *v1alpha1.Fault) {
		f.ComponentClass, f.ErrorCodes, f.Fatal = "GPU", []string{"XID-13", "XID-79"}, true
	}
	silent := func(f *v1alpha1.Fault) { f.Source, f.Check = "node-conditions", "Ready" }
	disk := func(f *v1alpha1.Fault) { f.Source, f.Check = "node-conditions", "DiskPressure" }
	alert := func(f *v1alpha1.Fault) { f.Source, f.Check = "alertmanager", "NodeDiskFailing" }
	fatal := func(f *v1alpha1.Fault) { f.Fatal = true }
	const taint = "example.com/gpu=sick:NoSchedule"
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration
		fault  func(*v1alpha1.Fault)
		pool   string
		want   string
	}{
		"Xid":         {"a reboot, and another one, and then a person", 0, xid, "", "xid,fatal cordon drain " + taint + " reboot,reboot,support"},
		"Silent":      {"it has been silent for long enough", 15 * time.Minute, silent, "", "silent cordon drain reboot,support"},
		"SilentYet":   {"it may come back", 14 * time.Minute, silent, "", ""},
		"Pressure":    {"the pods stay", time.Hour, disk, "", "pressure cordon"},
		"Alert":       {"it is only told", 0, alert, "", "alerts cordon drain dry-run"},
		"AlertOfGPU":  {"nor of a node with a GPU", 0, alert, "gpu", ""},
		"Fatal":       {"a person has to look", 0, fatal, "", "fatal cordon drain support"},
		"NotFatal":    {"nothing is done", time.Hour, func(*v1alpha1.Fault) {}, "", ""},
		"FatalAlert":  {"a rule that is tried out keeps no other from acting", 0, func(f *v1alpha1.Fault) { alert(f); fatal(f) }, "", "fatal cordon drain support"},
		"SilentFatal": {"the rule with the highest priority decides what is tried", time.Hour, func(f *v1alpha1.Fault) { silent(f); fatal(f) }, "", "silent,fatal cordon drain reboot,support"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Labels: map[string]string{"pool": tc.pool}}}
			v, err := set.Decide(node, []v1alpha1.Fault{fault(tc.age, tc.fault)}, now)
			if err != nil {
				t.Fatal(err)
			}
			if got := desiredText(v.DesiredActions); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// desiredText is a wish in a line.
func desiredText(w v1alpha1.DesiredActions) string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(len(w.MatchedRules) > 0, strings.Join(w.MatchedRules, ","))
	add(w.Cordon, "cordon")
	add(w.Drain, "drain")
	for _, t := range w.Taints {
		words = append(words, t.ToString())
	}
	var remedies []string
	for _, r := range w.Remedies {
		remedies = append(remedies, string(r))
	}
	add(len(remedies) > 0, strings.Join(remedies, ","))
	add(w.DryRun, "dry-run")
	return strings.Join(words, " ")
}
