package apiclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// provingPath is the largest document that every API server has for whoever may ask it at all.
const provingPath = "/openapi/v2"

// Every authenticated user may read it by the API server's own role system:discovery, unless that was changed.
// +kubebuilder:rbac:roleName=storage-client-node-agent,urls=/openapi/v2,verbs=get

// Prove makes a new connection to the API server and reads that many bytes over it, or all there is where that is less, and
// declares the status over another. What is read is not kept.
func (c *Client) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	began := c.clock.Now()
	body, err := c.fresh.Get().AbsPath(provingPath).SetHeader("Accept", "application/json").SetHeader("Accept-Encoding", "identity").Stream(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", provingPath, err)
	}
	got, err := io.CopyN(io.Discard, body, size)
	_ = body.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %d of %d bytes in %s: %w", provingPath, got, size, c.clock.Since(began).Round(time.Second), err)
	}
	_, err = c.applyStatus(ctx, c.fresh, status, "")
	return err
}
