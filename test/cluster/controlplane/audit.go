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

// auditPolicy logs, without bodies and once they are answered, all requests of some users and everybody's writes. Leases
// of others are heartbeats, and most of all writes.
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

// Manager is the user that the manager is to the API server.
const Manager = "system:serviceaccount:" + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment

// Agent is the user that all agents are.
const Agent = "system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + v1alpha1.AgentServiceAccount

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
	// DryRun is true where it was only asked what would be.
	DryRun bool
	// Live is true for a list or a get that the watch cache may not answer: it has no resource version of 0.
	Live bool
	// At is when it came.
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
		Set("audit-log-maxsize", "10240") // MiB; a second file would not be read
	return nil
}

func (p *ControlPlane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// Writes are the writes so far, but for those to Leases and those of the last seconds, as the API server's audit log has them. Needs
// Options.Audit.
func (p *ControlPlane) Writes() ([]Request, error) {
	requests, err := p.Requests()
	return slices.DeleteFunc(requests, func(r Request) bool {
		return r.Resource == "leases" || r.Verb == "impersonate" || r.IsRead()
	}), err
}

// IsRead reports whether a request changes nothing, by its verb.
func (r Request) IsRead() bool { return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" }

// ManagerRequests are all requests for objects that the manager has made so far, with the same reservation.
func (p *ControlPlane) ManagerRequests() ([]Request, error) {
	requests, err := p.Requests()
	return slices.DeleteFunc(requests, func(r Request) bool { return r.User != Manager || r.Resource == "" }), err
}

// Requests are all requests that the audit log has so far, with the same reservation.
func (p *ControlPlane) Requests() ([]Request, error) {
	requests, _, err := p.requestsFrom(0)
	return requests, err
}

// AwaitAudit returns when the audit log contains all requests that have been answered so far: it makes one itself, and waits for that.
// Needs Options.Audit.
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

// LastWrite is when one of these users wrote last, but for Leases and what was only tried, with the same reservation; zero before the first.
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

// requestsFrom reads the audit log from an offset on, and returns the one behind the last whole line.
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
		// The harness plays somebody.
		user = as.Username
	default:
		// What was asked is the other user's request; this one's is to be that user.
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
