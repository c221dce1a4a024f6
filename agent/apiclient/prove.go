package apiclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
)

// provingPath is the largest document that every API server serves to all authenticated users.
const provingPath = "/openapi/v2"

// By default, the built-in role system:discovery permits it for every authenticated user.
// +kubebuilder:rbac:roleName=storage-client-node-agent,urls=/openapi/v2,verbs=get

// proofTimeout is the server's limit for each request of a proof. A quarter of it is the maximum time in a queue of a busy API server.
const proofTimeout = 10 * time.Second

// Prove reads up to size bytes from the API server over one new connection and discards them. It writes the status over another new
// connection. If a busy API server rejects the read with 429, the error is reporter.ErrBusy: a short response is no proof. If it
// rejects only the status with 429, the error is TooManyRequests: the connection works, but the status is not written.
func (c *Client) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	start := c.clock.Now()
	body, err := c.fresh.Get().AbsPath(provingPath).SetHeader("Accept", "application/json").SetHeader("Accept-Encoding", "identity").
		MaxRetries(0).Timeout(proofTimeout).Stream(ctx)
	if apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("read %s: %w", provingPath, reporter.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", provingPath, err)
	}
	n, err := io.CopyN(io.Discard, body, size)
	_ = body.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %d of %d bytes in %s: %w", provingPath, n, size, c.clock.Since(start).Round(time.Second), err)
	}
	_, err = c.applyStatus(ctx, c.fresh.Patch(types.ApplyPatchType).MaxRetries(0).Timeout(proofTimeout), status, "")
	return err
}
