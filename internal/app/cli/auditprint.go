package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// auditEvent is the machine-readable form of an event. The names of its fields are stable.
type auditEvent struct {
	Position    int64           `json:"position"`
	Time        time.Time       `json:"time"`
	Recorded    time.Time       `json:"recorded"`
	Type        audit.Type      `json:"type"`
	Execution   auditExecution  `json:"execution"`
	Actor       auditActor      `json:"actor"`
	Action      string          `json:"action,omitempty"`
	Target      auditTarget     `json:"target"`
	Cluster     string          `json:"cluster,omitempty"`
	Outcome     string          `json:"outcome,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	PolicyHash  string          `json:"policyHash,omitempty"`
	PlanHash    string          `json:"planHash,omitempty"`
	Correlation string          `json:"correlationID,omitempty"`
	Parent      string          `json:"parent,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	PrevHash    string          `json:"prevHash"`
	Hash        string          `json:"hash"`
}

type auditExecution struct {
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Seq       int32  `json:"seq"`
}

type auditActor struct {
	Type audit.ActorType `json:"type"`
	ID   string          `json:"id,omitempty"`
}

type auditTarget struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
}

func auditEventOf(e *audit.Event) auditEvent {
	return auditEvent{
		Position: e.Position, Time: e.Time, Recorded: e.Recorded, Type: e.Type,
		Execution: auditExecution{e.ExecutionUID, e.Namespace, e.Name, e.Seq},
		Actor:     auditActor{e.ActorType, e.ActorID},
		Action:    e.Action,
		Target:    auditTarget(e.Target),
		Cluster:   e.Cluster, Outcome: e.Outcome, Reason: e.Reason, PolicyHash: e.PolicyHash, PlanHash: e.PlanHash,
		Correlation: e.Correlation, Parent: e.Parent, Payload: e.Payload,
		PrevHash: fmt.Sprintf("%x", e.PrevHash), Hash: fmt.Sprintf("%x", e.Hash),
	}
}

// auditRows is the number of table rows that are buffered to align columns.
const auditRows = 500

// eventPrinter writes events as they arrive.
type eventPrinter struct {
	w      io.Writer
	format string
	table  *tabwriter.Writer
	count  int
	heads  bool
}

func newEventPrinter(w io.Writer, format string, noHeaders bool) *eventPrinter {
	return &eventPrinter{w: w, format: format, table: tabwriter.NewWriter(w, 0, 0, 3, ' ', 0), heads: !noHeaders}
}

func (p *eventPrinter) writeEvent(e *audit.Event) error {
	p.count++
	if p.format == terminal.FormatJSON {
		return p.writeJSONListItem(e)
	}
	wide := p.format == terminal.FormatWide
	if p.count == 1 && p.heads {
		heads := []string{"TIME", "EVENT", "EXECUTION", "ACTION", "TARGET", "ACTOR", "OUTCOME", "REASON"}
		if wide {
			heads = append(heads, "POSITION", "CLUSTER", "PLAN", "POLICY", "CORRELATION", "PARENT", "UID")
		}
		if err := p.writeRow(heads); err != nil {
			return err
		}
	}
	cells := []string{
		e.Time.UTC().Format(time.RFC3339), string(e.Type), joinNonEmptyWithSlash(e.Namespace, e.Name), e.Action,
		joinNonEmptyWithSlash(e.Target.Kind, e.Target.Namespace, e.Target.Name), actorText(e), e.Outcome, e.Reason,
	}
	if wide {
		cells = append(cells, fmt.Sprint(e.Position), e.Cluster, shortHash(e.PlanHash), shortHash(e.PolicyHash), e.Correlation, e.Parent, e.ExecutionUID)
	}
	if err := p.writeRow(cells); err != nil || p.count%auditRows != 0 {
		return err
	}
	return p.table.Flush()
}

func (p *eventPrinter) writeRow(cells []string) error {
	for i, c := range cells {
		c = strings.NewReplacer("\t", " ", "\n", " ").Replace(terminal.ReplaceUnprintable(c))
		if c == "" {
			c = "-"
		}
		cells[i] = c
	}
	_, err := io.WriteString(p.table, strings.Join(cells, "\t")+"\n")
	return err
}

func (p *eventPrinter) writeJSONListItem(e *audit.Event) error {
	lead := "{\n  \"items\": [\n    "
	if p.count > 1 {
		lead = ",\n    "
	}
	text, err := json.MarshalIndent(auditEventOf(e), "    ", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = io.WriteString(p.w, lead+string(text))
	return err
}

func (p *eventPrinter) finishOutput() error {
	if p.format != terminal.FormatJSON {
		return p.table.Flush()
	}
	end := "\n  ]\n}\n"
	if p.count == 0 {
		end = "{\n  \"items\": []\n}\n"
	}
	_, err := io.WriteString(p.w, end)
	return err
}

func joinNonEmptyWithSlash(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, "/")
}

func actorText(e *audit.Event) string {
	if e.ActorID == "" {
		return string(e.ActorType)
	}
	return e.ActorID
}

// shortHash returns the first characters of a hash, enough to identify it.
func shortHash(hash string) string {
	const enough = 12
	return hash[:min(len(hash), enough)]
}

// auditReport is the machine-readable result of a verification.
type auditReport struct {
	Valid   bool        `json:"valid"`
	Checked int64       `json:"verifiedEvents"`
	Begin   string      `json:"start"`
	End     string      `json:"head"`
	Broken  *auditBreak `json:"firstError,omitempty"`
}

type auditBreak struct {
	Kind      audit.BreakKind `json:"kind"`
	Position  int64           `json:"position"`
	Execution string          `json:"execution,omitempty"`
	Seq       int32           `json:"seq,omitempty"`
	Message   string          `json:"message"`
}

func printVerifyReport(w io.Writer, format string, r *audit.Report) error {
	if format == terminal.FormatJSON {
		out := auditReport{Valid: r.Broken == nil, Checked: r.Checked, Begin: r.Begin.String(), End: r.End.String()}
		if b := r.Broken; b != nil {
			out.Broken = &auditBreak{b.Kind, b.Position, b.ExecutionUID, b.Seq, b.Message}
		}
		text, err := json.MarshalIndent(out, "", "  ")
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err = w.Write(append(text, '\n'))
		return err
	}
	if r.Broken != nil {
		_, err := fmt.Fprintf(w, "%d events are valid, up to %s\n", r.Checked, r.End)
		return err
	}
	_, err := fmt.Fprintf(w, "all %d events are valid\nstart  %s\nhead   %s\n", r.Checked, r.Begin, r.End)
	return err
}
