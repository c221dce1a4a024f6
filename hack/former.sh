#!/usr/bin/env bash
# Unpacks earlier commits into the cache, and builds the manager of each. It prints their directories, separated by colons, for tests of an upgrade.
#
#   hack/former.sh COMMIT...     the oldest first
#
# A commit that this clone lacks is skipped with a message. If SCO_REQUIRE_HOST_TOOLS is set, this is an error.
set -euo pipefail

cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator/former
found=()
for commit in "$@"; do
  if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
    echo "SKIPPED because this clone lacks commit $commit: the upgrade from it is NOT tested. Run: git fetch --unshallow" >&2
    [[ -z ${SCO_REQUIRE_HOST_TOOLS-} ]] || exit 1
    continue
  fi
  directory=$cache/$(git rev-parse "$commit^{commit}")
  if [[ ! -x $directory/bin/manager ]]; then
    rm -rf "$directory"
    mkdir -p "$directory"
    git archive "$commit" | tar -x -C "$directory"
    CGO_ENABLED=0 hack/progress.sh compile "manager of $commit" go -C "$directory" build -v -buildvcs=false -o bin/manager ./cmd/manager >&2
  fi
  found+=("$directory")
done
(IFS=:; echo "${found[*]-}")
