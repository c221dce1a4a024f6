#!/usr/bin/env bash
# Checks that the linter keeps pure packages pure. In a copy of the tree, each gets a file with a client, a clock, files, the network,
# programs and randomness, and the linter must reject every one of them. A package that is pure by its name and that no rule covers fails too. Run by "make lint", which sets GOLANGCI_LINT.
set -euo pipefail

cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard -- '*.go' 'tuning/*.yaml' 'controllers/*.yaml' go.mod go.sum .golangci.yaml |
  while IFS= read -r -d '' file; do
    if [[ -f $file ]]; then printf '%s\0' "$file"; fi
  done | xargs -0 cp --parents -t "$copy"
cd "$copy"

# All of controllers/internal is pure except read, write, watch and parallel.
mapfile -t rooms < <(find tuning controllers agent/bounds -name '*.go' -not -name '*_test.go' -printf '%h\n' | sort -u |
  grep -E '^tuning/|/(plan|judge|ledger|optionset)(/|$)|^controllers/internal/|^controllers/(overview|profile/status|store)$|^agent/bounds$' |
  grep -vE '^controllers/internal/(read|write|watch|parallel)$')

for room in "${rooms[@]}"; do
  package=$(find "$room" -maxdepth 1 -name '*.go' -not -name '*_test.go' -exec sed -n 's/^package //p' {} + | head -n 1)
  cat >"$room/impure.go" <<EOF
package $package

import (
	"context"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	_ client.Client
	_ clock.Clock
	_ restclient.Config
	_ net.Conn
	_ exec.Cmd
	_ context.Context
	_ = os.Getpid
	_ = rand.Int
	_ = time.Now
	_ = time.Since
	_ = metav1.Now
)
EOF
done
refused=('import .sigs.k8s.io/controller-runtime/pkg/client' 'import .k8s.io/utils/clock' 'import .k8s.io/client-go/rest' 'import .net.'
  'import .os.' 'import .os/exec' 'import .math/rand' 'import .context' 'time\.Now' 'time\.Since' 'metav1\.Now')

"$GOLANGCI_LINT" run --enable-only depguard,forbidigo --timeout 0 "${rooms[@]/#/./}" >findings 2>&1 || true
failed=0
for room in "${rooms[@]}"; do
  for what in "${refused[@]}"; do
    if ! grep -q "^$room/impure.go:.*$what" findings; then
      echo "The linter accepts $what in $room"
      failed=1
    fi
  done
done
if ((failed)); then
  head -n 20 findings
  echo 'Add the package to the rules "pure" of depguard and forbidigo in .golangci.yaml'
  exit 1
fi
echo "${#rooms[@]} pure packages: the linter rejects clients, clocks, files, network and programs in each"
