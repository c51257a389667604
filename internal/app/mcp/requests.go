package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxAgent is the maximum length of spec.requestedByAgent, in characters.
	maxAgent = 128
	// unknownAgent names an assistant that does not give its name. Its requests need a mark, too.
	unknownAgent = "unknown assistant"
)

// requestInput is an action on one object.
type requestInput struct {
	Action     string         `json:"action" jsonschema:"name of the action; list_actions shows all"`
	Target     string         `json:"target,omitempty" jsonschema:"object of the action as kind/namespace/name, or kind/name for an object without a namespace"`
	Parameters map[string]any `json:"parameters,omitempty" jsonschema:"parameters of the action beside its target; list_actions shows them"`
	Reason     string         `json:"reason" jsonschema:"why, for the person who approves it and for the audit"`
}

// addRequestTools adds the tools that request executions. They never wait for the result.
func addRequestTools(m *mcp.Server, s *server) {
	addRequestTool(m, s, &mcp.Tool{
		Name:        "request_dry_run",
		Description: "Request the checks, the policies and the dry run of an action, which change nothing. describe_execution shows the result.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)},
	}, "--dry-run=server")
	addRequestTool(m, s, &mcp.Tool{
		Name:        "request_execution",
		Description: "Request an action. It runs after a person other than your user has approved it. describe_execution shows what it waits for.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)},
	})
}

// addRequestTool adds a tool that runs "exec" with these flags.
func addRequestTool(m *mcp.Server, s *server, tool *mcp.Tool, flags ...string) {
	mcp.AddTool(m, tool, func(ctx context.Context, r *mcp.CallToolRequest, in requestInput) (*mcp.CallToolResult, any, error) {
		if strings.TrimSpace(in.Reason) == "" {
			return nil, nil, errors.New("the reason is empty: say why, for the person who approves it")
		}
		args := newCommand("exec").
			flag("agent", formatAgent(r.ClientInfo())).
			flag("target", in.Target).
			flag("reason", in.Reason)
		args = append(args, flags...)
		if len(in.Parameters) == 0 {
			return s.runCLICommand(ctx, r, args.names(in.Action), ""), nil, nil
		}
		parameters, err := json.Marshal(in.Parameters) // not as arguments: their values can name files
		if err != nil {
			return nil, nil, fmt.Errorf("encode parameters: %w", err)
		}
		args = args.flag("filename", "-") // standard input
		return s.runCLICommand(ctx, r, args.names(in.Action), string(parameters)), nil, nil
	})
}

// formatAgent returns the name and version of an assistant on one line. It is never empty.
func formatAgent(client *mcp.Implementation) string {
	if client == nil {
		return unknownAgent
	}
	words := strings.FieldsFunc(client.Name+" "+client.Version, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	})
	name := []rune(strings.Join(words, " "))
	name = name[:min(len(name), maxAgent)]
	if len(name) == 0 {
		return unknownAgent
	}
	return strings.TrimSpace(string(name))
}
