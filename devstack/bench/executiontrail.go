package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A auditTrail is the audit log of an API server: with its clock, and all writes that reached it.
type auditTrail struct {
	dir  string
	file *os.File
	read *bufio.Reader
	half string // the start of an incomplete line
}

// trailPolicy logs the writes of the controller and of the accounts of actions. For executions and
// the status of Pods it logs the content of all writes, by any user. It includes writes that the
// API server rejected.
const trailPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Request
  verbs: [create, patch]
  resources:
  - {group: kubernetesexecution.kubernaut.io, resources: [kubernetesexecutions, kubernetesexecutions/status]}
- level: Request
  verbs: [patch]
  resources:
  - {group: "", resources: [pods/status]}
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  userGroups: ["` + executorGroup + `"]
- level: None
`

func newAuditTrail(dir, policy string) (*auditTrail, error) {
	t := &auditTrail{dir: dir}
	const mode = 0o600
	if err := os.WriteFile(t.filePath("policy.yaml"), []byte(policy), mode); err != nil {
		return nil, err
	}
	// The API server appends to an existing file.
	file, err := os.OpenFile(t.filePath("log"), os.O_CREATE|os.O_RDONLY, mode)
	if err != nil {
		return nil, err
	}
	t.file, t.read = file, bufio.NewReader(file)
	return t, nil
}

func (t *auditTrail) filePath(name string) string { return filepath.Join(t.dir, "audit-"+name) }

func (t *auditTrail) apiServerArgs() []string {
	return []string{"--audit-policy-file=" + t.filePath("policy.yaml"), "--audit-log-path=" + t.filePath("log"), "--audit-log-maxsize=1000"}
}

// A auditedWrite is one request that the API server has answered.
type auditedWrite struct {
	Verb       string
	RequestURI string `json:"requestURI"`
	UserAgent  string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }

	RequestObject struct {
		Metadata struct{ Name string }
		Status   struct{ Phase string }
	}
	ResponseStatus struct{ Code int }
	// Answered is when the response was sent.
	Answered time.Time `json:"stageTimestamp"`
}

// formatVerbAndResource returns the kind of a write.
func (w auditedWrite) formatVerbAndResource() string {
	text := w.Verb + " " + w.ObjectRef.Resource
	if w.ObjectRef.Subresource != "" {
		text += "/" + w.ObjectRef.Subresource
	}
	if strings.Contains(w.RequestURI, "dryRun=") {
		text += " (dry run)"
	}
	return text
}

// formatObjectName returns the name of the object.
func (w auditedWrite) formatObjectName() string {
	if w.ObjectRef.Name != "" {
		return w.ObjectRef.Name
	}
	return w.RequestObject.Metadata.Name
}

// readNewWrites returns the writes since the last call. The API server logs a write when it answers,
// or shortly after.
func (t *auditTrail) readNewWrites() ([]auditedWrite, error) {
	var writes []auditedWrite
	for {
		text, err := t.read.ReadString('\n')
		if errors.Is(err, io.EOF) {
			t.half += text
			return writes, nil
		}
		if err != nil {
			return nil, err
		}
		var w auditedWrite
		if err := json.Unmarshal([]byte(t.half+text), &w); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		t.half = ""
		writes = append(writes, w)
	}
}
