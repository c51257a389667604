package apitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestChanges lists past changes and follows new ones.
func TestChanges(t *testing.T) {
	t.Parallel()
	url := newAPI(t)
	u := user{t, url}
	_, errOut := u.wantRun(cli.CodeOK, "", "changes")
	u.wantOutput(errOut, "No changes found.")
	u.wantRun(cli.CodeOK, fleet, "create", "-f", "-")
	out, _ := u.wantRun(cli.CodeOK, "", "changes", "--cluster", "eu-1", "--action", "cluster-created", "-o", "wide", "--no-headers")
	u.wantOutput(out, "eu-1   clusters/eu-1   cluster-created   anonymous   succeeded")

	out, _ = u.wantRun(cli.CodeOK, "", "events", "-o", "jsonpath={.items[*].action}")
	u.wantOutput(out, "cluster-created nodepool-created") // the newest last
	out, _ = u.wantRun(cli.CodeOK, "", "events", "nodepool/eu-1/workers", "--no-headers")
	u.wantOutput(out, "nodepools/workers   nodepool-created")
	out, _ = u.wantRun(cli.CodeOK, "", "events", "cluster", "eu-1", "-o", "jsonpath={.items[*].subject}")
	if strings.Trim(strings.ReplaceAll(out, "clusters/eu-1", ""), " \n") != "" {
		u.Errorf("changes of other objects: %s", out)
	}
	_, errOut = u.wantRun(cli.CodeOK, "", "events", "execution/scale-web")
	u.wantOutput(errOut, "No changes found.")
	_, errOut = u.wantRun(cli.CodePrecondition, "", "events", "cluster/eu-9")
	u.wantOutput(errOut, `there is no cluster "eu-9"`)
	for _, args := range []string{"events eu-1", "events workload/x", "events cluster/eu-1 --node gpu-1", "events cluster/a cluster/b", "events cluster/"} {
		u.wantRun(cli.CodeUsage, "", strings.Fields(args)...)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	env := cli.Env{Stdout: writer, Stderr: t.Output(), Now: time.Now}
	root := cli.Command(env)
	go func() {
		done <- cli.Run(ctx, env, root, []string{"--server", url, "events", "--watch", "--limit", "1", "-o", "json", "--actor", "fault-quarantine,anonymous"})
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	next := func() v1.ChangeEvent {
		t.Helper()
		var e v1.ChangeEvent
		if !lines.Scan() {
			t.Fatalf("the stream is over: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := next(); !strings.HasSuffix(e.Action, "-created") {
		t.Errorf("the past: %+v", e)
	}
	body, err := json.Marshal(changeevent.NewPayload(changeevent.ChangeEvent{
		Action: changeevent.ActionCordon, NodeName: "gpu-node-1", ErrorCode: "XID-79", Source: changeevent.SourceFaultQuarantine, Timestamp: time.Now(),
	}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+v1.ChangesPath+"/eu-1", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if e := next(); e.Node != "gpu-node-1" || e.Cluster != "eu-1" || e.Summary != "NVSentinel cordoned node gpu-node-1 due to XID-79" {
		t.Errorf("what came: %+v", e)
	}
	cancel()
	if code := <-done; code != cli.CodeOK {
		t.Errorf("exit code %d", code)
	}
}
