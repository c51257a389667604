package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func addContextCommands(s *session, parent *cobra.Command) {
	current := &cobra.Command{
		Use:               "current-context",
		Short:             "Print the name of the current context",
		Example:           "  fleetloop config current-context",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := s.loadConfig(cmd)
			if err != nil {
				return err
			}
			if cfg.CurrentContext == "" {
				return &failure{
					err:  errors.New("no context is set"),
					code: CodePrecondition,
					next: "run 'fleetloop config use-context NAME' to set one",
				}
			}
			_, err = fmt.Fprintln(s.env.Stdout, cfg.CurrentContext)
			return err
		},
	}
	use := &cobra.Command{
		Use:               "use-context NAME",
		Short:             "Set the current context",
		Example:           "  fleetloop config use-context prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.editConfig(cmd, "Switched to context "+args[0]+".", func(root *yaml.Node, cfg Config) error {
				if _, ok := cfg.Contexts[args[0]]; !ok {
					return newUnknownContextError(args[0], cfg.Contexts)
				}
				setKey(root, "current_context", args[0])
				return nil
			})
		},
	}
	deletion := &cobra.Command{
		Use:               "delete-context NAME",
		Short:             "Delete a context, and its login",
		Example:           "  fleetloop config delete-context staging",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeContexts,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.deleteContextAndLogin(cmd, args[0]) },
	}
	parent.AddCommand(newGetContextsCommand(s), current, use, newSetContextCommand(s), deletion)
}

func newGetContextsCommand(s *session) *cobra.Command {
	formats := []string{terminal.FormatTable, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
	var format string
	cmd := &cobra.Command{
		Use:               "get-contexts",
		Short:             "List the contexts",
		Example:           "  fleetloop config get-contexts\n  fleetloop config get-contexts -o name",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckFormat(cmd, format, formats); err != nil {
				return err
			}
			return s.printContexts(cmd, format)
		},
	}
	AddOutputFlag(cmd, &format, formats)
	return cmd
}

func newSetContextCommand(s *session) *cobra.Command {
	var use bool
	cmd := &cobra.Command{
		Use:   "set-context NAME",
		Short: "Add a context, or change settings of one",
		Long: "Add a context, or change the settings of one that flags give. Others stay; an empty value removes one. Secrets\n" +
			"are no flags: use 'fleetloop login', or --token-file.",
		Example: "  fleetloop config set-context prod --server=https://fleet.example.com --oidc-issuer=https://login.example.com --oidc-client-id=fleetloop --current\n" +
			"  fleetloop config set-context prod --kube-context=prod-eu --namespace=kubernaut-executor",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeContexts,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.saveContextSettings(cmd, args[0], use) },
	}
	settings.AddFlags(cmd.Flags(), &Host{})
	settings.AddFlags(cmd.Flags(), &SignIn{})
	cmd.Flags().BoolVar(&use, "current", false, "make it the current context")
	return cmd
}

func (s *session) saveContextSettings(cmd *cobra.Command, name string, makeCurrent bool) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return usageErrorf(cmd, "%q is not a name of a context; use text without spaces", name)
	}
	given := map[string]string{}
	for _, e := range settings.Reference(&Context{}) {
		if flag := cmd.Flags().Lookup(strings.ReplaceAll(e.Key, "_", "-")); flag != nil && flag.Changed {
			given[e.Key] = absolutePathIfFileKey(e.Key, flag.Value.String())
		}
	}
	return s.editConfig(cmd, "Context "+name+" set.", func(root *yaml.Node, _ Config) error {
		setOrRemoveContextKeys(findOrAddMapping(findOrAddMapping(root, "contexts"), name), given)
		if makeCurrent {
			setKey(root, "current_context", name)
		}
		return nil
	})
}

// setOrRemoveContextKeys sets the given keys of a context. An empty value removes a key.
func setOrRemoveContextKeys(c *yaml.Node, given map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch {
		case given[key] == "":
			removeKey(c, key)
		case key == "oidc_scopes":
			setList(c, key, strings.Split(given[key], ","))
		case key == "insecure_skip_tls_verify":
			setKey(c, key, given[key]).Tag = "!!bool"
		default:
			setKey(c, key, given[key])
		}
	}
}

func (s *session) deleteContextAndLogin(cmd *cobra.Command, name string) error {
	err := s.editConfig(cmd, "Context "+name+" deleted.", func(root *yaml.Node, cfg Config) error {
		if _, ok := cfg.Contexts[name]; !ok {
			return newUnknownContextError(name, cfg.Contexts)
		}
		removeKey(findOrAddMapping(root, "contexts"), name)
		if cfg.CurrentContext == name {
			removeKey(root, "current_context")
		}
		return nil
	})
	if err != nil {
		return err
	}
	path, _ := s.configPath(cmd)
	return newLoginStore(path).deleteLoginsOfContext(cmd.Context(), name)
}

// absolutePathIfFileKey returns the value of a setting without a dependence on the current folder.
func absolutePathIfFileKey(key, value string) string {
	var isFile bool
	switch key {
	case "token_file", "ca_file", "client_certificate", "client_key":
		isFile = true
	case "kubeconfig": // may also be a list of files
		isFile = !strings.ContainsRune(value, filepath.ListSeparator)
	}
	if !isFile || value == "" {
		return value
	}
	path, err := filepath.Abs(value)
	if err != nil {
		return value
	}
	return path
}

// A contextItem is what programs read of a context. It has no secrets.
type contextItem struct {
	Name        string `json:"name"`
	Current     bool   `json:"current"`
	Server      string `json:"server,omitempty"`
	KubeContext string `json:"kube_context,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
}

// printContexts prints all contexts, with a mark at the current one.
func (s *session) printContexts(cmd *cobra.Command, format string) error {
	cfg, _, err := s.loadConfig(cmd)
	if err != nil {
		return err
	}
	items := []contextItem{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Contexts)) {
		c := cfg.Contexts[name]
		items = append(items, contextItem{
			Name:        name,
			Current:     name == cfg.CurrentContext,
			Server:      c.Server,
			KubeContext: c.KubeContext,
			Namespace:   c.Namespace,
		})
	}
	switch format {
	case terminal.FormatJSON, terminal.FormatYAML:
		return WriteYAMLOrJSON(s.env.Stdout, format, map[string]any{"items": items})
	case terminal.FormatName:
		for _, i := range items {
			if _, err := fmt.Fprintln(s.env.Stdout, i.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if len(items) == 0 {
		s.printNote("No contexts found.")
		return nil
	}
	w := tabwriter.NewWriter(s.env.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "CURRENT\tNAME\tSERVER\tKUBE CONTEXT\tNAMESPACE")
	for _, i := range items {
		mark := ""
		if i.Current {
			mark = "*"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", mark, i.Name, i.Server, i.KubeContext, i.Namespace) // Flush returns the error
	}
	return w.Flush()
}

func (s *session) completeContexts(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && cmd.HasParent() && cmd.Parent().Name() == "config" {
		return nil, none
	}
	file, err := s.configPathIfExists(cmd)
	if err != nil {
		return nil, none
	}
	var cfg Config // without the current context, which may be what is being typed
	if _, err := settings.Load(&cfg, settings.Source{File: file}); err != nil {
		return nil, none
	}
	var names []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(cfg.Contexts)) {
		names = append(names, cobra.CompletionWithDesc(name, cfg.Contexts[name].Server))
	}
	return names, none
}

// editConfig changes the configuration file, and keeps its comments and order. change gets the document, and what
// it says. The result must be valid; otherwise nothing is written.
func (s *session) editConfig(cmd *cobra.Command, doneMessage string, change func(root *yaml.Node, cfg Config) error) error {
	path, _ := s.configPath(cmd)
	if path == "" {
		return &failure{
			err:  errors.New("there is no home directory for the configuration file"),
			code: CodeUsage,
			next: "give a file with --config",
		}
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	err := updatePrivateFile(parent, path, func(old []byte) ([]byte, error) {
		var before, after Config
		if _, err := settings.Load(&before, settings.Source{File: path, FileData: append([]byte{}, old...)}); err != nil {
			return nil, &failure{err: err, code: CodeUsage, next: "correct the file"}
		}
		edited, err := editYAMLMapping(old, func(root *yaml.Node) error { return change(root, before) })
		if err != nil {
			return nil, err
		}
		if _, err := settings.Load(&after, settings.Source{File: path, FileData: edited}); err != nil {
			return nil, &failure{err: err, code: CodeUsage, next: cmd.CommandPath() + " --help"}
		}
		return edited, nil
	})
	if err != nil {
		if _, ok := errors.AsType[*failure](err); ok {
			return err
		}
		return fmt.Errorf("change %s: %w", filepath.Base(path), err)
	}
	s.printNote("%s", doneMessage)
	return nil
}

// editYAMLMapping changes the mapping of a document. A document without a mapping becomes an empty one.
func editYAMLMapping(text []byte, change func(root *yaml.Node) error) ([]byte, error) {
	doc := &yaml.Node{Kind: yaml.DocumentNode}
	if err := yaml.Unmarshal(text, doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		doc.Content = []*yaml.Node{{Kind: yaml.MappingNode}}
	}
	if err := change(doc.Content[0]); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(doc), enc.Close())
	return b.Bytes(), err
}

// findOrAddMapping returns the mapping at a key. It adds a missing one.
func findOrAddMapping(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		if v := n.Content[i+1]; v.Kind != yaml.MappingNode { // the key has no value
			*v = yaml.Node{Kind: yaml.MappingNode}
		}
		if v := n.Content[i+1]; len(v.Content) == 0 {
			v.Style = 0 // {} would stay on one line
		}
		return n.Content[i+1]
	}
	v := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, stringNode(key), v)
	return v
}

// setKey sets a key of a mapping to a text, and returns the node of the text.
func setKey(n *yaml.Node, key, value string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; n.Content[i].Value == key {
			v.SetString(value)
			return v
		}
	}
	v := stringNode(value)
	n.Content = append(n.Content, stringNode(key), v)
	return v
}

func setList(n *yaml.Node, key string, values []string) {
	removeKey(n, key)
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range values {
		list.Content = append(list.Content, stringNode(value))
	}
	n.Content = append(n.Content, stringNode(key), list)
}

func removeKey(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

func stringNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	return n
}
