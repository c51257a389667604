// Package audittest runs the command line on an audit in PostgreSQL.
package audittest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var now = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// runCLI runs the command line.
func runCLI(t *testing.T, database string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	env := cli.Env{
		Stdout: &out, Stderr: &errs, Now: func() time.Time { return now },
		LookupEnv: func(name string) (string, bool) { return database, name == "DATABASE_URL" && database != "" },
	}
	code = cli.Run(t.Context(), env, cli.Command(env), append([]string{"audit"}, args...))
	return out.String(), errs.String(), code
}

// newAudit is a database with two executions, of which one failed.
func newAudit(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.NewMigratedDatabaseURL(t)
	cfg := pgtest.Config(url)
	cfg.Role = postgres.RoleExecutionController
	pool, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for i, by := range []string{"alice@example.com", "\x1b[31mbob"} {
		begun := now.AddDate(0, 0, -2*(2-i))
		at := metav1.NewMicroTime(begun.Add(time.Second))
		ke := &v1alpha1.KubernetesExecution{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("scale-%d", i+1), Namespace: "exec", UID: []types.UID{"uid-a", "uid-b"}[i], CreationTimestamp: metav1.NewTime(begun)},
			Spec: v1alpha1.KubernetesExecutionSpec{
				Action: "scale_deployment", RequestedBy: by, TargetNamespace: "shop", ResourceName: "web",
				Parameters: &runtime.RawExtension{Raw: []byte(`{"replicas":5}`)},
			},
			Status: v1alpha1.KubernetesExecutionStatus{
				Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonValidationError, Target: "Deployment/shop/web",
				PhaseTransitions: []v1alpha1.PhaseTransition{{Phase: v1alpha1.PhaseFailed, At: at}},
			},
		}
		if err := audit.NewPostgresStore(pool).Append(t.Context(), audit.Records(ke, "local")); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

func TestList(t *testing.T) {
	url := newAudit(t)
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
		said   string
	}{
		"All": {"from the newest, and harmless to a terminal", nil, `
TIME                   EVENT       EXECUTION      ACTION             TARGET                ACTOR                  OUTCOME   REASON
2026-03-08T12:00:01Z   failed      exec/scale-2   scale_deployment   Deployment/shop/web   execution-controller   Failed    validation_error
2026-03-08T12:00:00Z   requested   exec/scale-2   scale_deployment   Deployment/shop/web   ` + "\uFFFD" + `[31mbob               -         -
2026-03-06T12:00:01Z   failed      exec/scale-1   scale_deployment   Deployment/shop/web   execution-controller   Failed    validation_error
2026-03-06T12:00:00Z   requested   exec/scale-1   scale_deployment   Deployment/shop/web   alice@example.com      -         -
`, ""},
		"Wide": {"with where it stands", []string{"--execution", "scale-1", "-o", "wide", "--limit", "1"}, `
TIME                   EVENT    EXECUTION      ACTION             TARGET                ACTOR                  OUTCOME   REASON             POSITION   CLUSTER   PLAN   POLICY   CORRELATION   PARENT   UID
2026-03-06T12:00:01Z   failed   exec/scale-1   scale_deployment   Deployment/shop/web   execution-controller   Failed    validation_error   2          local     -      -        -             -        uid-a
`, "Only the newest 1 are shown; --limit 0 shows all.\n"},
		"Since":     {"in days", []string{"--since", "3d", "--no-headers", "--actor", "execution-controller"}, "\n2026-03-08T12:00:01Z   failed   exec/scale-2   scale_deployment   Deployment/shop/web   execution-controller   Failed   validation_error\n", ""},
		"SinceTime": {"at a time", []string{"--since", "2026-03-08T12:00:01Z", "--no-headers"}, "\n2026-03-08T12:00:01Z   failed   exec/scale-2   scale_deployment   Deployment/shop/web   execution-controller   Failed   validation_error\n", ""},
		"None":      {"which is said", []string{"--target", "bank/web"}, "\n", "No events found.\n"},
		"NoneOfIt":  {"an execution that has events, which are others", []string{"--execution", "scale-1", "--actor", "carol"}, "\n", "No events found.\n"},
		"NoneJSON":  {"which is a document", []string{"--target", "bank/web", "-o", "json"}, "\n{\n  \"items\": []\n}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := runCLI(t, url, append([]string{"list"}, tc.args...)...)
			if code != 0 || stderr != tc.said {
				t.Errorf("code %d, said %q, want %q", code, stderr, tc.said)
			}
			if diff := cmp.Diff(tc.want, "\n"+stdout); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestListNoSuchExecution(t *testing.T) {
	url := newAudit(t)
	const want = "error: there is no execution \"scale-9\" in the audit\nnext:  run 'fleetloop audit get' to see the newest events of all executions\n"
	if stdout, stderr, code := runCLI(t, url, "list", "--execution", "scale-9", "-o", "json"); code != 3 || stderr != want || stdout != "" {
		t.Errorf("code %d, said %q and\n%s", code, stderr, stdout)
	}
}

func TestListForPrograms(t *testing.T) {
	stdout, _, code := runCLI(t, newAudit(t), "list", "--execution", "exec/scale-1", "-o", "json")
	var got struct {
		Items []struct {
			Position  int
			Type      string
			Execution struct {
				UID string
				Seq int
			}
			Actor   struct{ Type, ID string }
			Payload struct{ Parameters struct{ Replicas int } }
			Hash    string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || len(got.Items) != 2 {
		t.Fatalf("code %d, %v: %s", code, err, stdout)
	}
	if i := got.Items[1]; i.Position != 1 || i.Type != "requested" || i.Execution.UID != "uid-a" || i.Actor.ID != "alice@example.com" || i.Payload.Parameters.Replicas != 5 || len(i.Hash) != 64 {
		t.Errorf("%+v", i)
	}
}

func TestVerify(t *testing.T) {
	url := newAudit(t)
	stdout, stderr, code := runCLI(t, url, "verify")
	lines := strings.Split(stdout, "\n")
	if code != 0 || stderr != "" || lines[0] != "all 4 events are valid" || !strings.HasPrefix(lines[2], "head   4:") {
		t.Fatalf("code %d, said %q:\n%s", code, stderr, stdout)
	}
	noted := strings.TrimPrefix(lines[2], "head   ")
	if _, stderr, code := runCLI(t, url, "verify", "--checkpoint", noted); code != 0 {
		t.Errorf("code %d, said %q", code, stderr)
	}
	other := "4:" + strings.Repeat("ab", 32)
	if _, stderr, code := runCLI(t, url, "verify", "--checkpoint", noted, "--checkpoint", other); code != 1 || !strings.Contains(stderr, "event 4 (number 72 of execution uid-b) was changed: the checkpoint has another hash") {
		t.Errorf("code %d, said %q", code, stderr)
	}

	owner, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), `set session_replication_role = replica; update executor.execution_audit_event set actor_id = 'mallory' where position = 3`); err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code = runCLI(t, url, "verify")
	want := "error: the audit is invalid: event 3 (number 1 of execution uid-b) was changed: its hash does not match its content\n" +
		"next:  run 'fleetloop audit get --execution uid-b -o json' to see the stored event\n"
	if code != 1 || stderr != want || !strings.HasPrefix(stdout, "2 events are valid, up to 2:") {
		t.Errorf("code %d, said %q:\n%s", code, stderr, stdout)
	}
	stdout, _, code = runCLI(t, url, "verify", "-o", "json")
	var report struct {
		Valid      bool
		Checked    int `json:"verifiedEvents"`
		FirstError struct {
			Kind     string
			Position int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 || report.Valid || report.Checked != 2 || report.FirstError.Kind != "changed" || report.FirstError.Position != 3 {
		t.Errorf("code %d, %v: %s", code, err, stdout)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	url := newAudit(t)
	for name, tc := range map[string]struct {
		reason   string
		database string
		args     []string
		code     int
		said     string
	}{
		"NoDatabase":  {"nobody named one", "", []string{"verify"}, 2, "set DATABASE_URL"},
		"BadDatabase": {"it is no URL", "postgres://u:hunter2@h:port/", []string{"verify"}, 2, "check DATABASE_URL"},
		"Away":        {"nothing answers", "postgres://127.0.0.1:1/x?connect_timeout=1", []string{"list"}, 1, "check that the database in DATABASE_URL is reachable"},
		"Empty":       {"it has no schema", pgtest.NewEmptyDatabaseURL(t), []string{"list"}, 1, "fleet-api migrate"},
		"OtherRole":   {"it may not read it", url, []string{"list", "--database-role", "fleet_api"}, 1, "grant execution_auditor"},
		"Format":      {"there is no such", url, []string{"list", "-o", "yaml"}, 2, "unknown output format"},
		"Limit":       {"it is below zero", url, []string{"list", "--limit", "-1"}, 2, "negative"},
		"Since":       {"it is no time", url, []string{"list", "--since", "yesterday"}, 2, "is not an age"},
		"SinceLater":  {"it is below zero", url, []string{"list", "--since", "-2h"}, 2, "is not an age"},
		"Noted":       {"it is no position", url, []string{"verify", "--checkpoint", "17"}, 2, "POSITION:HASH"},
		"Unknown":     {"there is no such", url, []string{"prune"}, 2, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := runCLI(t, tc.database, tc.args...)
			if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.said) || strings.Contains(stderr, "hunter2") {
				t.Errorf("%s: code %d, want %d; said %q, want %q:\n%s", tc.reason, code, tc.code, stderr, tc.said, stdout)
			}
		})
	}
}
