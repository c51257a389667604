package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
)

// The tenants of the workload. Most clusters belong to the first one.
const (
	tenantBlue  = "blue"
	tenantGreen = "green"
)

// rotationBound is the longest time until all processes use new credentials. A process can be frozen or
// restart meanwhile.
const rotationBound = 2 * time.Minute

func tokensPath(dir string) string         { return filepath.Join(dir, "tokens.yaml") }
func tokenPath(dir, subject string) string { return filepath.Join(dir, subject+".token") }

// tokenRights are the rights of each subject of the fleet API.
func tokenRights() map[string]string {
	return map[string]string{
		tenantBlue: "tenant: " + tenantBlue, tenantGreen: "tenant: " + tenantGreen, "viewer": "roles: [viewer]",
		"sentinel": "roles: [system]", "adapter": "roles: [system]", "cluster-worker": "roles: [system]",
	}
}

// newTokens returns a new token of each subject.
func newTokens() map[string]string {
	tokens := map[string]string{}
	for subject := range tokenRights() {
		tokens[subject] = rand.Text()
	}
	return tokens
}

// writeServerTokenFile writes the file of the fleet API, which accepts all tokens in the sets.
func writeServerTokenFile(dir string, sets ...map[string]string) error {
	var list strings.Builder
	list.WriteString("tokens:\n")
	rights := tokenRights()
	for _, tokens := range sets {
		for _, subject := range slices.Sorted(maps.Keys(tokens)) {
			fmt.Fprintf(&list, "- {sha256: %x, subject: %s, %s}\n", sha256.Sum256([]byte(tokens[subject])), subject, rights[subject])
		}
	}
	return replaceFile(tokensPath(dir), []byte(list.String()))
}

// writeClientTokens writes the file of each subject.
func writeClientTokens(dir string, tokens map[string]string) error {
	for subject, token := range tokens {
		if err := replaceFile(tokenPath(dir, subject), []byte(token)); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile replaces a file at once, as the kubelet does in a volume.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// replaceTokensAndRevokeOld replaces all tokens, as an administrator does: the servers accept the new ones, the clients
// get them, and later the servers reject the old ones.
func (t *topology) replaceTokensAndRevokeOld(ctx, schedule context.Context, f faults.Fault) error {
	before, after := t.tokens, newTokens()
	if err := writeServerTokenFile(t.dir, before, after); err != nil {
		return err
	}
	if err := t.awaitTokenStatus(ctx, after["viewer"], http.StatusOK); err != nil {
		return fmt.Errorf("the fleet API does not accept a new token: %w", err)
	}
	t.tokens = after
	if err := writeClientTokens(t.dir, after); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"data": {"token": %q}}`, base64.StdEncoding.EncodeToString([]byte(after["sentinel"])))
	if err := t.patchHost(ctx, "secret", tokenSecret, patch); err != nil {
		return err
	}
	pauseFor(schedule, f.Lasts)
	if err := writeServerTokenFile(t.dir, after); err != nil {
		return err
	}
	if err := t.awaitTokenStatus(ctx, before["viewer"], http.StatusUnauthorized); err != nil {
		return fmt.Errorf("the fleet API does not reject an old token: %w", err)
	}
	return nil
}

// awaitTokenStatus waits until each fleet API responds to a token with a status.
func (t *topology) awaitTokenStatus(ctx context.Context, token string, wantStatus int) error {
	for _, addr := range t.apiAddrs {
		c, err := client.New(client.Config{Endpoint: "https://" + addr, Token: client.StaticToken(token), CAFile: caPath(t.dir), MaxAttempts: 1})
		if err != nil {
			return err
		}
		err = poll(ctx, rotationBound, func(ctx context.Context) error {
			_, err := c.WhoAmI(ctx)
			if _, status := classify(err); status != wantStatus {
				return fmt.Errorf("%s: status %d, want %d: %w", addr, status, wantStatus, err)
			}
			return nil
		})
		c.CloseIdle()
		if err != nil {
			return err
		}
	}
	return nil
}

// patchHost patches an object in the namespace of the sentinels. The API server may be down meanwhile.
func (t *topology) patchHost(ctx context.Context, kind, name, patch string) error {
	return poll(ctx, rotationBound, func(ctx context.Context) error {
		_, err := t.kube.Kubectl(ctx, "--namespace", hostNamespace, "patch", kind, name, "--type=merge", "--patch="+patch)
		return err
	})
}
