package cli

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// deliveriesAPI knows the deliveries of the event "a/b", and records what it is asked to send.
func deliveriesAPI(asked *[]string, queued ...string) *fakeAPI {
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	items := []v1.ChangeDelivery{
		{Sink: "chat", Type: "slack", State: v1.DeliveryDelivered, Attempts: 2, FirstAttemptAt: ago(time.Hour), LastAttemptAt: ago(59 * time.Minute)},
		{Sink: "default", Type: "nvsentinel", State: v1.DeliverySkipped},
		{
			Sink: "on-call", Type: "pagerduty", State: v1.DeliveryPending, Attempts: 3, FirstAttemptAt: ago(time.Hour), LastAttemptAt: ago(time.Minute),
			NextAttemptAt: ago(-20 * time.Second), Error: "server_error", HTTPStatus: 503,
		},
		{Sink: "lake", Type: "cloudevents", State: v1.DeliveryRejected, Attempts: 1, FirstAttemptAt: ago(time.Hour), LastAttemptAt: ago(time.Hour), Error: "client_error", HTTPStatus: 400},
	}
	return &fakeAPI{before: func(r *http.Request) (int, any) {
		switch r.URL.EscapedPath() {
		case "/api/changes/a%2Fb/deliveries":
			return http.StatusOK, v1.ChangeDeliveries{ID: "a/b", Recorded: true, Items: items}
		case "/api/changes/none/deliveries":
			return http.StatusOK, v1.ChangeDeliveries{ID: "none", Reason: "only those of others are", Items: []v1.ChangeDelivery{}}
		case v1.UndeliveredChangesPath:
			list := v1.UndeliveredChanges{More: true}
			for i, d := range items[2:] {
				list.Items = append(list.Items, v1.UndeliveredChange{EventID: "a/b", Action: "shoot-failed", Cluster: "eu-1", Time: now.Add(-time.Duration(i+1) * time.Hour), Delivery: d})
			}
			return http.StatusOK, list
		case "/api/changes/a%2Fb/resend":
			body, err := io.ReadAll(r.Body)
			if err != nil || len(r.Header.Get(v1.IdempotencyKeyHeader)) != 36 {
				return http.StatusBadRequest, v1.Problem{Detail: "no idempotency key"}
			}
			*asked = append(*asked, string(body))
			return http.StatusAccepted, v1.ChangeResent{Queued: append([]string{}, queued...), Items: items}
		}
		return http.StatusNotFound, v1.Problem{Detail: "nothing is served at this path"}
	}}
}

func TestShowEventDeliveries(t *testing.T) {
	t.Parallel()
	const undelivered = "-undelivered"
	for name, c := range map[string]struct {
		id, format string
		colour     bool
	}{
		"undelivered": {undelivered, "table", true}, "undelivered-yaml": {undelivered, "yaml", false},
		"deliveries": {"a/b", "table", false}, "deliveries-colour": {"a/b", "table", true}, "deliveries-json": {"a/b", "json", false},
		"deliveries-none": {"none", "table", false}, "deliveries-none-yaml": {"none", "yaml", false}, "deliveries-missing": {"x", "table", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			env := Env{
				Stdout: &stdout, Stderr: &stderr, Terminal: c.colour, Now: func() time.Time { return now },
				LookupEnv: func(string) (string, bool) { return "", false }, Wrap: deliveriesAPI(nil).wrapTransport,
			}
			root := Command(env)
			AddChangesSubcommands(root, &cobra.Command{
				Use: "deliveries", RunE: func(cmd *cobra.Command, _ []string) error {
					if c.id == undelivered {
						return ShowUndelivered(cmd, env, c.format)
					}
					return ShowEventDeliveries(cmd, env, c.id, c.format)
				},
			})
			r := run{args: []string{"changes", "deliveries"}}
			r.code = Run(t.Context(), env, root, r.args)
			r.stdout, r.stderr = stdout.String(), stderr.String()
			wantGolden(t, name, r.outputText())
		})
	}
}

func TestResend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		args   []string
		queued []string
		code   int
		says   string
		body   string
	}{
		"All":     {"to those that gave it up", []string{"a/b"}, []string{"chat", "lake"}, CodeOK, "change event a/b is sent again to chat, lake\n", `{}`},
		"One":     {"with a reason", []string{"a/b", "--sink=chat", "--reason=a new token"}, []string{"chat"}, CodeOK, "again to chat\n", `{"sink":"chat","reason":"a new token"}`},
		"Nothing": {"it says why", []string{"a/b"}, nil, CodeOK, "Nothing to send: ", `{}`},
		"Unknown": {"and what to do next", []string{"x"}, nil, CodePrecondition, "next:  run 'fleetloop changes deliveries --event=x'", ""},
		"NoID":    {"", nil, nil, CodeUsage, "accepts 1 arg", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			r := run{args: append([]string{"changes", "resend"}, c.args...)}.runCLI(t, deliveriesAPI(&asked, c.queued...))
			if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.says) {
				t.Errorf("%s: exit code %d, want %d and %q\n%s", c.reason, r.code, c.code, c.says, r.outputText())
			}
			if diff := cmp.Diff(c.body, strings.Join(asked, "")); diff != "" {
				t.Errorf("%s: the request (-want +got)\n%s", c.reason, diff)
			}
		})
	}
}
