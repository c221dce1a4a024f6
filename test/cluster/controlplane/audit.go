package controlplane

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/storageclient/operator/api/v1alpha1"
)

// auditPolicy logs all requests of some users and the writes of all users, without bodies and after the response. It skips other leases:
// these are heartbeats, and would be most of the writes.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: %s
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - group: coordination.k8s.io
- level: Metadata
`

// Manager is the user name of the manager in the API server.
const Manager = "system:serviceaccount:" + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment

// Agent is the user name of all agents.
const Agent = "system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + v1alpha1.AgentServiceAccount

// Request is one completed request, or a watch that the API server has started.
type Request struct {
	// User is the user who made the request.
	User string
	// Verb, Group, Resource, Subresource, Namespace and Name describe the request. Name may be empty for requests about several objects.
	Verb, Group, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status of the response.
	Code int
	// Forbidden is true if no role permitted the request.
	Forbidden bool
	// DryRun is true if the request only tested a change.
	DryRun bool
	// Live means a list or a get that the watch cache must not serve: it has no resource version of 0.
	Live bool
	// At is the time when the request arrived.
	At time.Time
}

func (p *ControlPlane) configureAudit(users []string) error {
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	list, err := json.Marshal(append([]string{Manager, Agent}, users...))
	if err != nil {
		return err
	}
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, list), 0o600); err != nil {
		return err
	}
	p.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", p.auditLog()).
		Set("audit-log-mode", "batch").
		Set("audit-log-batch-max-wait", "2s").
		Set("audit-log-maxsize", "10240") // MiB; Requests reads only the first file
	return nil
}

func (p *ControlPlane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// Writes returns the writes in the API server's audit log so far. It skips writes to Leases, and may lack the last seconds. It needs
// Options.Audit.
func (p *ControlPlane) Writes() ([]Request, error) {
	requests, err := p.Requests()
	return slices.DeleteFunc(requests, func(r Request) bool {
		return r.Resource == "leases" || r.Verb == "impersonate" || r.IsRead()
	}), err
}

// IsRead reports whether a request has a read-only verb.
func (r Request) IsRead() bool { return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" }

// ManagerRequests returns all requests of the manager for objects so far, with the same limits.
func (p *ControlPlane) ManagerRequests() ([]Request, error) {
	requests, err := p.Requests()
	return slices.DeleteFunc(requests, func(r Request) bool { return r.User != Manager || r.Resource == "" }), err
}

// Requests returns all requests in the audit log so far, with the same limits.
func (p *ControlPlane) Requests() ([]Request, error) {
	requests, _, err := p.requestsFrom(0)
	return requests, err
}

// AwaitAudit returns when the audit log contains all requests that are already completed. It makes one request itself, and waits for it
// in the log. It needs Options.Audit.
func (p *ControlPlane) AwaitAudit(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return err
	}
	mark := "audit-mark-" + strings.ToLower(rand.Text())
	if err := clients.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, mark, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete a ConfigMap that does not exist: got %w", err)
	}
	var from int64
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		requests, end, err := p.requestsFrom(from)
		from = end
		return slices.ContainsFunc(requests, func(r Request) bool { return r.Name == mark }), err
	})
}

// LastWrite returns the time of the last write by these users, without Leases and dry runs, with the same limits. Zero if there is none.
func (p *ControlPlane) LastWrite(users ...string) (time.Time, error) {
	requests, end, err := p.requestsFrom(p.read)
	p.read = end
	for _, r := range requests {
		if slices.Contains(users, r.User) && !r.IsRead() && !r.DryRun && r.Resource != "leases" && r.Resource != "" && r.At.After(p.lastWrite) {
			p.lastWrite = r.At
		}
	}
	return p.lastWrite, err
}

// requestsFrom reads the audit log from an offset, and returns the offset after the last complete line.
func (p *ControlPlane) requestsFrom(offset int64) (requests []Request, end int64, err error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return nil, offset, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, err
	}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, offset, nil
		}
		if err != nil {
			return nil, offset, err
		}
		offset += int64(len(line))
		found, err := parseRequest(line)
		if err != nil {
			return nil, offset, fmt.Errorf("read the audit log: %w", err)
		}
		requests = append(requests, found...)
	}
}

func parseRequest(line []byte) ([]Request, error) {
	var event struct {
		Verb      string `json:"verb"`
		URI       string `json:"requestURI"`
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
	if err := json.Unmarshal(line, &event); err != nil {
		return nil, err
	}
	user := event.User.Username
	switch as := event.Impersonated; {
	case as == nil:
	case user != Manager:
		// The test harness impersonates a user.
		user = as.Username
	default:
		// The request belongs to the impersonated user. The actual user needs the right to impersonate.
		return impersonations(user, as.Username, as.Extra), nil
	}
	object := event.ObjectRef
	return []Request{{
		User: user, Verb: event.Verb, Group: object.Group, Resource: object.Resource, Subresource: object.Subresource,
		Namespace: object.Namespace, Name: object.Name,
		Code: event.Status.Code, Forbidden: event.Annotations["authorization.k8s.io/decision"] == "forbid", At: event.Received,
		DryRun: strings.Contains(event.URI, "dryRun="), Live: !strings.Contains(event.URI, "resourceVersion=0"),
	}}, nil
}

// impersonations returns the requests that the API server checks when a user impersonates a service account with extras
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
