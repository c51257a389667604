package mcp

import (
	"context"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// defaultLimit is the number of items of a list without a limit.
const defaultLimit = 50

// kindInput selects one resource.
type kindInput struct {
	Kind string `json:"kind" jsonschema:"cluster or nodepool"`
	Name string `json:"name" jsonschema:"name or id; PARENT/NAME for a node pool"`
}

type findInput struct {
	Kind     string   `json:"kind" jsonschema:"clusters, nodepools, manifests or workloads"`
	Names    []string `json:"names,omitempty" jsonschema:"names or ids; all if empty"`
	Selector string   `json:"selector,omitempty" jsonschema:"label selector, such as region=us-east,tier!=test"`
	Search   string   `json:"search,omitempty" jsonschema:"search expression, such as: name like 'demo-%'"`
	Limit    int      `json:"limit,omitempty" jsonschema:"maximum number of resources; 50 if omitted"`
	Full     bool     `json:"full,omitempty" jsonschema:"true for all fields as JSON, false for a table"`
}

type stuckInput struct {
	OlderThan string `json:"older_than,omitempty" jsonschema:"minimum time for which a resource is not ready, such as 1h; 5m if omitted"`
	Cause     string `json:"cause,omitempty" jsonschema:"adapter, gardener, paused, none_reported or children; all if omitted"`
	Limit     int    `json:"limit,omitempty" jsonschema:"maximum number of resources; 50 if omitted"`
}

type changesInput struct {
	Since   string `json:"since,omitempty" jsonschema:"an age such as 2h or 7d, a day, or a time in RFC 3339"`
	Until   string `json:"until,omitempty" jsonschema:"likewise"`
	Cluster string `json:"cluster,omitempty" jsonschema:"name of a cluster"`
	Node    string `json:"node,omitempty" jsonschema:"name of a node"`
	Actor   string `json:"actor,omitempty" jsonschema:"person or component that made the change"`
	Outcome string `json:"outcome,omitempty" jsonschema:"succeeded or failed"`
	Text    string `json:"text,omitempty" jsonschema:"text in the summary or the reason"`
	Limit   int    `json:"limit,omitempty" jsonschema:"maximum number of events; 50 if omitted"`
}

type diffInput struct {
	kindInput

	Revision int `json:"revision" jsonschema:"generation to compare with the current one"`
}

type auditInput struct {
	Execution string `json:"execution,omitempty" jsonschema:"name, namespace/name or UID of an execution"`
	Target    string `json:"target,omitempty" jsonschema:"object of the action, such as Deployment/shop/web"`
	Actor     string `json:"actor,omitempty" jsonschema:"user"`
	Since     string `json:"since,omitempty" jsonschema:"an age such as 24h, a day, or a time in RFC 3339"`
	Limit     int    `json:"limit,omitempty" jsonschema:"maximum number of events; 50 if omitted"`
}

type namesInput struct {
	Names []string `json:"names,omitempty" jsonschema:"names; all if empty"`
}

type nameInput struct {
	Name string `json:"name" jsonschema:"name"`
}

type whyInput struct {
	kindInput

	Sentinel  string `json:"sentinel,omitempty" jsonschema:"name of one SentinelConfig; all of the kind if omitted"`
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of the SentinelConfigs; all if omitted"`
}

type planInput struct {
	Sentinel  string `json:"sentinel" jsonschema:"name of the SentinelConfig"`
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of the SentinelConfig, if several have one of this name"`
	Limit     int    `json:"limit,omitempty" jsonschema:"maximum number of due resources to list; 50 if omitted"`
}

type coverageInput struct {
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of the SentinelConfigs; all if omitted"`
}

type noInput struct{}

// addFleetTools adds the tools that read the fleet API to a server. Each runs the command that it returns.
func addFleetTools(m *mcp.Server, s *server) {
	addReadOnlyTool(
		m,
		s,
		"fleet_summary",
		"Count clusters and node pools by phase, sync state and label, with the most frequent reasons for which resources are not ready",
		func(noInput) []string { return []string{"summary"} },
	)
	addReadOnlyTool(m, s, "list_stuck", "List what has not been ready or synced for long, oldest first, with the cause",
		func(in stuckInput) []string {
			return newCommand("stuck").flag("older-than", in.OlderThan).flag("cause", in.Cause).limit(in.Limit)
		})
	addReadOnlyTool(m, s, "find_resources", "List clusters, node pools, manifests or workloads",
		func(in findInput) []string {
			format := "wide"
			if in.Full {
				format = "json"
			}
			return newCommand(
				"get",
			).flag("output", format).
				flag("selector", in.Selector).
				flag("search", in.Search).
				limit(in.Limit).
				names(append([]string{in.Kind}, in.Names...)...)
		})
	addReadOnlyTool(
		m,
		s,
		"describe_resource",
		"Show all of one cluster or node pool: spec, generation, conditions, adapter reports and the sync to Gardener",
		func(in kindInput) []string { return newCommand("describe").names(in.Kind, in.Name) },
	)
	addReadOnlyTool(m, s, "list_revisions", "List the generations of a cluster or node pool with author, time and changed fields",
		func(in kindInput) []string { return newCommand("history").names(in.Kind, in.Name) })
	addReadOnlyTool(m, s, "compare_revision", "Compare an earlier generation of a cluster or node pool with the current one",
		func(in diffInput) []string {
			return newCommand("diff").flag("revision", strconv.Itoa(in.Revision)).names(in.Kind, in.Name)
		})
	addReadOnlyTool(m, s, "list_changes", "List changes of clusters, nodes and executions with actor, reason and outcome, newest first",
		func(in changesInput) []string {
			return newCommand("changes").flag("output", "wide").flag("since", in.Since).flag("until", in.Until).flag("cluster", in.Cluster).
				flag("node", in.Node).flag("actor", in.Actor).flag("outcome", in.Outcome).flag("text", in.Text).limit(in.Limit)
		})
	addReadOnlyTool(m, s, "list_syncs", "Show the sync of clusters to Gardener: state, attempts, last error and next try",
		func(in namesInput) []string {
			return newCommand("clusters", "sync").flag("output", "wide").names(in.Names...)
		})
	addReadOnlyTool(m, s, "show_own_rights", "Show as which user the tools read the fleet API, and what that user may do",
		func(noInput) []string { return []string{"whoami"} })
}

// addAuditTool adds the tool that reads the database of the audit.
func addAuditTool(m *mcp.Server, s *server) {
	addReadOnlyTool(m, s, "list_audit", "List audit events of executions, newest first",
		func(in auditInput) []string {
			return newCommand("audit", "list").flag("output", "wide").flag("execution", in.Execution).flag("target", in.Target).
				flag("actor", in.Actor).flag("since", in.Since).limit(in.Limit)
		})
}

// addHostTools adds the tools that read the Kubernetes API of the host cluster.
func addHostTools(m *mcp.Server, s *server) {
	addReadOnlyTool(m, s, "list_node_faults", "List faulty nodes: the fault, the remedy, and what it waits for",
		func(in namesInput) []string {
			return newCommand("faults", "list").flag("output", "wide").names(in.Names...)
		})
	addReadOnlyTool(
		m,
		s,
		"describe_node_fault",
		"Show a faulty node: faults and sources, required actions, what blocks the drain, and its history",
		func(in nameInput) []string { return newCommand("faults", "describe").names(in.Name) },
	)
	addReadOnlyTool(m, s, "list_executions", "List executions (remediations) with phase, target and requester",
		func(in namesInput) []string { return newCommand("exec", "get").names(in.Names...) })
	addReadOnlyTool(m, s, "describe_execution", "Show an execution: plan, policy decision, approvals, result and rollback",
		func(in nameInput) []string { return newCommand("exec", "describe").names(in.Name) })
	addReadOnlyTool(m, s, "list_actions", "List the actions that an execution can run, or show the parameters of one",
		func(in namesInput) []string { return newCommand("exec", "actions").names(in.Names...) })
	addReadOnlyTool(
		m,
		s,
		"explain_sentinel_decision",
		"Explain why the sentinels publish, or do not publish, an event for a cluster or node pool: the rule, its inputs, and when the next event is due",
		func(in whyInput) []string {
			return newCommand("sentinel", "why").flag("sentinel-namespace", in.Namespace).flag("sentinel", in.Sentinel).names(in.Kind, in.Name)
		})
	addReadOnlyTool(m, s, "plan_sentinel", "Show which events a SentinelConfig would publish now: the due resources, the expected rate, and an example of the data",
		func(in planInput) []string {
			return newCommand("sentinel", "plan").flag("sentinel-namespace", in.Namespace).limit(in.Limit).names(in.Sentinel)
		},
	)
	addReadOnlyTool(
		m,
		s,
		"check_sentinel_coverage",
		"Find clusters and node pools that no SentinelConfig watches, or more than one, grouped by labels",
		func(in coverageInput) []string {
			return newCommand("sentinel", "coverage").flag("sentinel-namespace", in.Namespace)
		})
}

// addReadOnlyTool adds a tool that runs the command which toArgs returns.
func addReadOnlyTool[In any](m *mcp.Server, s *server, name, description string, toArgs func(In) []string) {
	closed := false
	tool := &mcp.Tool{Name: name, Description: description, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed}}
	mcp.AddTool(m, tool, func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		return s.runCLICommand(ctx, r, toArgs(in), ""), nil, nil
	})
}

// A command is a command line. Inputs become single arguments: no value can add a flag.
type command []string

func newCommand(words ...string) command { return words }

// flag adds a flag unless its value is empty.
func (c command) flag(name, value string) command {
	if value == "" {
		return c
	}
	return append(c, "--"+name+"="+value)
}

// limit adds the maximum number of items.
func (c command) limit(n int) command {
	if n <= 0 {
		n = defaultLimit
	}
	return c.flag("limit", strconv.Itoa(n))
}

// names adds the positional arguments, after all flags.
func (c command) names(names ...string) command { return append(append(c, "--"), names...) }
