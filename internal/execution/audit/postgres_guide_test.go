package audit_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A guide is a storeBed on which one does what the pages about the audit say, word
// for word.
type guide struct {
	*storeBed

	written map[string]bool // statements of the pages, and whether they were run
}

// newGuide has the statements of all pages about the audit, and the logins that
// these suppose.
func newGuide(t *testing.T) *guide {
	t.Helper()
	g := &guide{storeBed: newYear(t), written: map[string]bool{}}
	statement := regexp.MustCompile("(?m)(?:^ {4,}|^|`)((?:select|update|create role|grant) [^`\n]*)")
	for _, page := range []string{"how-to/query-the-audit", "runbooks/ExecutionAuditVerificationFailed", "runbooks/ExecutionAuditDelayed", "runbooks/ExecutionResultUnknown"} {
		text, err := os.ReadFile("../../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range statement.FindAllStringSubmatch(string(text), -1) {
			g.written[m[1]] = false
		}
	}
	for _, login := range []string{"fleet", "fleet_executions"} { // a login that migrates, and one of the execution-controller
		g.exec(`create role ` + login + ` login`)
	}
	t.Cleanup(func() { // logins are of the server, which other tests have, too
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, g.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx) //nolint:errcheck // it is not needed any more
		if _, err := conn.Exec(ctx, `drop role if exists auditor, fleet, fleet_executions`); err != nil {
			t.Error(err)
		}
	})
	return g
}

// does gives a statement that a page has and that begins so, which is run with
// what is given for it.
func (g *guide) does(begins string) string {
	g.Helper()
	for s := range g.written {
		if strings.HasPrefix(s, begins) {
			g.written[s] = true
			return s
		}
	}
	g.Fatalf("no page has a statement that begins with %q: %v", begins, g.written)
	return ""
}

// login is the URL of a login.
func (g *guide) login(name string) string {
	g.Helper()
	u, err := url.Parse(g.url)
	if err != nil {
		g.Fatal(err)
	}
	u.User = url.UserPassword(name, "…")
	return u.String()
}

// rows runs a statement as a login, and counts its rows.
func (g *guide) rows(login, sql string) int {
	g.Helper()
	rows, err := connect(g.TB, g.login(login)).Query(g.Context(), sql)
	if err != nil {
		g.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		g.Fatalf("%s: %v", sql, err)
	}
	return len(list)
}

// fleetloop runs a command of the auditor, which must exit so and say that.
func (g *guide) fleetloop(code int, says string, args ...string) string {
	g.Helper()
	var out bytes.Buffer
	env := cli.Env{
		Stdout: &out, Stderr: &out, Now: time.Now,
		LookupEnv: func(name string) (string, bool) { return g.login("auditor"), name == "DATABASE_URL" },
	}
	if got := cli.Run(g.Context(), env, cli.Command(env), append([]string{"audit"}, args...)); got != code || !strings.Contains(out.String(), says) {
		g.Errorf("fleetloop audit %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, says, out.String())
	}
	return out.String()
}

// unknownRecords returns the records of an execution whose actions are unknown.
func unknownRecords() []audit.Record {
	at := metav1.NewMicroTime(recordsBegin)
	return audit.Records(&v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: "lost", Namespace: "kubernaut-executor", UID: "uid-lost", CreationTimestamp: metav1.NewTime(recordsBegin)},
		Spec:       v1alpha1.KubernetesExecutionSpec{Action: "scale_deployment", RequestedBy: "alice@example.com"},
		Status: v1alpha1.KubernetesExecutionStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonExecutionFailed, ReasonDetail: v1alpha1.DetailResultUnknown, Target: "Deployment/shop/web",
			PhaseTransitions: []v1alpha1.PhaseTransition{{Phase: v1alpha1.PhaseFailed, At: at}},
		},
	}, "local")
}

// TestTheGuide has the logins, reads, keeps for longer, prunes by hand and verifies
// as the pages about the audit say it.
func TestTheGuide(t *testing.T) {
	g := newGuide(t)
	g.append(unknownRecords()...)
	const recorded = 41 + 2
	g.rightsAreGiven()
	g.happened()
	noted := g.end(recorded)

	g.at(time.Date(2032, 6, 20, 0, 0, 0, 0, time.UTC)) // June of 2031 ended 355 days ago
	g.exec(g.does("update executor.execution_audit_settings"))
	for s, run := range g.written {
		if !run {
			t.Errorf("it is on a page, and was not run: %s", s)
		}
	}
	g.prunes(noted)
}

// rightsAreGiven gives the logins their roles. The roles themselves are there,
// since the owner of the tests may make them.
func (g *guide) rightsAreGiven() {
	g.Helper()
	const duplicate = "42710"
	for _, begins := range []string{"create role execution_controller", "create role execution_auditor"} {
		sql := g.does(begins)
		if _, err := g.owner.Exec(g.Context(), sql); postgres.SQLState(err) != duplicate {
			g.Errorf("%s: %v, want that it is there", sql, err)
		}
	}
	g.exec(g.does("create role auditor"))
	for sql := range g.written {
		if strings.HasPrefix(sql, "grant ") {
			g.written[sql] = true
			g.exec(sql)
		}
	}
}

// happened asks what happened, as the auditor.
func (g *guide) happened() {
	g.Helper()
	for begins, want := range map[string]int{
		"select name, phase":                          7, // executions, all that there are
		"select event_time, name, payload->>'detail'": 1,
		"select event_time, name, payload->>'target'": 1,
	} {
		if got := g.rows("auditor", g.does(begins)); got != want {
			g.Errorf("%s: %d rows, want %d", begins, got, want)
		}
	}
	if got := g.rows("auditor", g.does("select usename")); got == 0 {
		g.Error("nobody is logged in, not even who asks")
	}
	g.fleetloop(cli.CodeOK, "execution_failed", "list", "--execution", "lost")
}

// end is where so many events end that hold.
func (g *guide) end(events int) string {
	g.Helper()
	out := g.fleetloop(cli.CodeOK, fmt.Sprintf("all %d events are valid", events), "verify")
	_, end, ok := strings.Cut(out, "\nhead ")
	if !ok {
		g.Fatalf("it says no end: %s", out)
	}
	return strings.TrimSpace(end)
}

// prunes drops what is older than a year, which is the least since the owner has
// said so. What is left holds, up to the end that was noted before, and its
// beginning is the last hash that was dropped.
func (g *guide) prunes(noted string) {
	g.Helper()
	const through = 41 - 7 // the events of June are left, with those of the execution that is lost
	last := queryValue[[]byte](g.storeBed, `select hash from executor.execution_audit_event where position = $1`, through)
	controller := audit.NewPostgresStore(openAs(g.TB, g.login("fleet_executions"), postgres.RoleExecutionController))
	if _, err := controller.Maintain(g.Context(), retention); postgres.SQLState(err) != noRight {
		g.Errorf("90 days are not refused: %v", err)
	}
	conn := connect(g.TB, g.login("fleet_executions"))
	hand := func(sql string) error {
		_, err := conn.Exec(g.Context(), sql)
		return err
	}
	if err := hand(`set role ` + postgres.RoleExecutionController); err != nil {
		g.Fatal(err)
	}
	if err := hand(`select executor.prune_audit('364 days')`); postgres.SQLState(err) != noRight {
		g.Errorf("364 days are not refused: %v", err)
	}
	g.fleetloop(cli.CodeOK, "all 43 events are valid", "verify")
	if err := hand(`select executor.prune_audit('365 days')`); err != nil {
		g.Fatal(err)
	}

	const months = 5
	if end := g.end(43 - through + months); !strings.HasPrefix(end, "48:") {
		g.Errorf("it ends at %s", end)
	}
	g.fleetloop(cli.CodeOK, "", "verify", "--checkpoint", noted)
	g.fleetloop(cli.CodeFailed, "the audit is invalid", "verify", "--checkpoint", "43:"+strings.Repeat("ab", 32))
	for _, sql := range []string{
		`select hash from executor.execution_audit_anchor order by position desc limit 1`,
		`select decode(payload->>'hash', 'hex') from executor.execution_audit_event where type = 'pruned' order by position desc limit 1`,
		`select prev_hash from executor.execution_audit_event order by position limit 1`,
	} {
		wantValue(g.storeBed, hex.EncodeToString(last), `select encode((`+sql+`), 'hex')`)
	}
	wantValue(g.storeBed, "fleet_executions", `select string_agg(distinct actor_id, ' ') from executor.execution_audit_event where type = 'pruned'`)

	m, err := controller.Maintain(g.Context(), 365*24*time.Hour)
	if err != nil || m.Broken != nil || len(m.Pruned) > 0 {
		g.Errorf("the controller goes on with %+v: %v", m, err)
	}
}
