package controlplane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// auditPolicy logs, without bodies and once they are answered, all requests of the manager and everybody's writes. Leases are
// heartbeats, and most of all writes.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + Manager + `"]
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - group: coordination.k8s.io
- level: Metadata
`

// Manager is the user that the manager is to the API server.
const Manager = "system:serviceaccount:" + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment

// Request is one request that the API server has answered, or a watch that it has begun to.
type Request struct {
	// User is who made it.
	User string
	// Verb, Group, Resource, Subresource, Namespace and Name are what it was. Name may be empty where it is about several objects.
	Verb, Group, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status of the answer.
	Code int
	// Forbidden is true where no role allowed it.
	Forbidden bool
	// At is when it came.
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
		Set("audit-log-batch-max-wait", "2s").
		Set("audit-log-maxsize", "10240") // MiB; a second file would not be read
	return nil
}

func (p *ControlPlane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// Writes are the writes so far, but for those to Leases and those of the last seconds, as the API server's audit log has them. Needs
// Options.Audit.
func (p *ControlPlane) Writes() ([]Request, error) {
	requests, err := p.requests()
	return slices.DeleteFunc(requests, func(r Request) bool {
		return r.Resource == "leases" || r.Verb == "impersonate" || r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
	}), err
}

// ManagerRequests are all requests for objects that the manager has made so far, with the same reservation.
func (p *ControlPlane) ManagerRequests() ([]Request, error) {
	requests, err := p.requests()
	return slices.DeleteFunc(requests, func(r Request) bool { return r.User != Manager || r.Resource == "" }), err
}

func (p *ControlPlane) requests() ([]Request, error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var requests []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string `json:"verb"`
			User      struct{ Username string }
			ObjectRef struct {
				Resource, Subresource, Namespace, Name string
				Group                                  string `json:"apiGroup"`
			}
			Impersonated *struct {
				Username string
				Extra    map[string][]string
			} `json:"impersonatedUser"`
			Status      struct{ Code int } `json:"responseStatus"`
			Received    time.Time          `json:"requestReceivedTimestamp"`
			Annotations map[string]string  `json:"annotations"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if as := event.Impersonated; as != nil {
			// What was asked is the other user's request; this one's is to be that user.
			requests = append(requests, impersonations(event.User.Username, as.Username, as.Extra)...)
			continue
		}
		object := event.ObjectRef
		requests = append(requests, Request{
			User: event.User.Username, Verb: event.Verb, Group: object.Group, Resource: object.Resource, Subresource: object.Subresource,
			Namespace: object.Namespace, Name: object.Name,
			Code: event.Status.Code, Forbidden: event.Annotations["authorization.k8s.io/decision"] == "forbid", At: event.Received,
		})
	}
	return requests, lines.Err()
}

// impersonations are what a user needs to be a service account with extras, as the API server asks for it
// (kubernetes.io/docs/reference/access-authn-authz/authentication, "User impersonation").
func impersonations(user, account string, extras map[string][]string) []Request {
	parts := strings.Split(account, ":")
	if len(parts) != 4 {
		return []Request{{User: user, Verb: "impersonate", Resource: "users", Name: account}}
	}
	out := []Request{{User: user, Verb: "impersonate", Resource: "serviceaccounts", Namespace: parts[2], Name: parts[3]}}
	for key := range extras {
		out = append(out, Request{User: user, Verb: "impersonate", Group: "authentication.k8s.io", Resource: "userextras", Subresource: key})
	}
	return out
}
