package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The tenants of the workload. Most clusters belong to the first one.
const (
	tenantBlue  = "blue"
	tenantGreen = "green"
)

func tokensPath(dir string) string         { return filepath.Join(dir, "tokens.yaml") }
func tokenPath(dir, subject string) string { return filepath.Join(dir, subject+".token") }

// writeTokens writes a token for each tenant and component, and the file of the fleet API.
func writeTokens(dir string) error {
	var list strings.Builder
	list.WriteString("tokens:\n")
	for subject, rights := range map[string]string{
		tenantBlue: "tenant: " + tenantBlue, tenantGreen: "tenant: " + tenantGreen, "viewer": "roles: [viewer]",
		"sentinel": "roles: [system]", "adapter": "roles: [system]", "cluster-worker": "roles: [system]",
	} {
		token := rand.Text()
		fmt.Fprintf(&list, "- {sha256: %x, subject: %s, %s}\n", sha256.Sum256([]byte(token)), subject, rights)
		if err := os.WriteFile(tokenPath(dir, subject), []byte(token), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(tokensPath(dir), []byte(list.String()), 0o600)
}
