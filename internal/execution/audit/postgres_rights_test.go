package audit_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	noRight    = "42501"
	appendOnly = "55000"
)

// TestTheRights holds who may do what, down to the owner.
func TestTheRights(t *testing.T) {
	b := newStoreBed(t)
	b.append(newRecords("one")...)
	part := "executor." + queryValue[string](b, `select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'executor.execution_audit_event'::regclass order by 1 limit 1`)
	const none = `'[]'::jsonb`
	type codes struct{ controller, auditor, api, owner string }
	for sql, want := range map[string]codes{
		`select from executor.execution_audit_event`:                                              {"", "", noRight, ""},
		`select from executor.execution_summary`:                                                  {"", "", noRight, ""},
		`select from executor.execution_audit_head`:                                               {"", "", noRight, ""},
		`select from executor.execution_audit_anchor`:                                             {"", "", noRight, ""},
		`select from fleetloop_migrations`:                                                        {"", "", "", ""},
		`select executor.append_audit(` + none + `)`:                                              {"", noRight, noRight, ""},
		`select executor.create_audit_partitions(1)`:                                              {"", noRight, noRight, ""},
		`select executor.prune_audit('90 days')`:                                                  {"", noRight, noRight, ""},
		`select executor.prune_audit('1 hour')`:                                                   {noRight, noRight, noRight, noRight},
		`select executor.prune_audit(null)`:                                                       {noRight, noRight, noRight, noRight},
		`select executor.ensure_audit_partition(now())`:                                           {noRight, noRight, noRight, ""},
		`update executor.execution_audit_event set outcome = ''`:                                  {noRight, noRight, noRight, appendOnly},
		`delete from executor.execution_audit_event`:                                              {noRight, noRight, noRight, appendOnly},
		`truncate executor.execution_audit_event`:                                                 {noRight, noRight, noRight, appendOnly},
		`update ` + part + ` set outcome = ''`:                                                    {noRight, noRight, noRight, appendOnly},
		`delete from ` + part:                                                                     {noRight, noRight, noRight, appendOnly},
		`truncate ` + part:                                                                        {noRight, noRight, noRight, appendOnly},
		`select from ` + part:                                                                     {noRight, noRight, noRight, ""},
		`drop table ` + part:                                                                      {noRight, noRight, noRight, ""},
		`alter table executor.execution_audit_event disable trigger all`:                          {noRight, noRight, noRight, ""},
		`insert into executor.execution_audit_event select * from executor.execution_audit_event`: {noRight, noRight, noRight, "23505"},
		`select from executor.execution_audit_event for update`:                                   {noRight, noRight, noRight, ""},
		`update executor.execution_audit_head set position = position`:                            {noRight, noRight, noRight, appendOnly},
		`update executor.execution_audit_head set position = 1`:                                   {noRight, noRight, noRight, appendOnly},
		`delete from executor.execution_audit_head`:                                               {noRight, noRight, noRight, appendOnly},
		`truncate executor.execution_audit_head`:                                                  {noRight, noRight, noRight, appendOnly},
		`update executor.execution_audit_anchor set position = 1`:                                 {noRight, noRight, noRight, appendOnly},
		`delete from executor.execution_audit_anchor`:                                             {noRight, noRight, noRight, appendOnly},
		`truncate executor.execution_audit_anchor`:                                                {noRight, noRight, noRight, appendOnly},
		`insert into executor.execution_audit_anchor values (1, '', '', 0, now())`:                {noRight, noRight, noRight, ""},
		`update executor.execution_summary set outcome = ''`:                                      {noRight, noRight, noRight, ""},
		`delete from executor.execution_summary`:                                                  {noRight, noRight, noRight, ""},
		`update executor.execution_audit_settings set min_retention = '1 hour'`:                   {noRight, noRight, noRight, ""},
		`update executor.execution_audit_settings set min_retention = '-1 hour'`:                  {noRight, noRight, noRight, "23514"},
		`create table executor.mine ()`:                                                           {noRight, noRight, noRight, ""},
		`select from tenant.resources`:                                                            {noRight, noRight, "", ""},
		`select from tenant.clusters`:                                                             {noRight, noRight, "", ""},
	} {
		for role, code := range map[string]string{
			"execution_controller": want.controller, "execution_auditor": want.auditor, "fleet_api": want.api, "fleet_api_all_tenants": want.api, "cluster_worker": "any", "none": want.owner,
		} {
			conn := connect(t, b.url)
			if _, err := conn.Exec(t.Context(), `set role `+role); err != nil {
				t.Fatal(err)
			}
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec(t.Context(), sql)
			if got := postgres.SQLState(err); code != "any" && (got != code || code == "" && err != nil) {
				t.Errorf("%s as %s: %v, want code %q", sql, role, err, code)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(t.Context())
		}
	}
	b.wantWhole(6)
}
