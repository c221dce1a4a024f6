package controlplane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// auditPolicy logs writes, without their bodies, once they are answered. Leases are heartbeats, and most of all writes.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - group: coordination.k8s.io
- level: Metadata
`

// Write is one write that the API server has answered.
type Write struct {
	// User is who made it.
	User string
	// Verb, Resource and Subresource are what it was.
	Verb, Resource, Subresource string
	// Code is the HTTP status of the answer.
	Code int
	// At is when the request came.
	At time.Time
}

func (p *ControlPlane) configureAudit() error {
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	p.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", p.auditLog()).
		Set("audit-log-mode", "batch").
		Set("audit-log-maxsize", "10240") // MiB; a second file would not be read
	return nil
}

func (p *ControlPlane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// Writes are the writes so far, but for those of the last seconds, as the API server's audit log has them. Needs
// Options.Audit.
func (p *ControlPlane) Writes() ([]Write, error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var writes []Write
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string `json:"verb"`
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
			Status    struct{ Code int } `json:"responseStatus"`
			Received  time.Time          `json:"requestReceivedTimestamp"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		writes = append(writes, Write{
			User: event.User.Username, Verb: event.Verb, Resource: event.ObjectRef.Resource, Subresource: event.ObjectRef.Subresource,
			Code: event.Status.Code, At: event.Received,
		})
	}
	return writes, lines.Err()
}
