#!/usr/bin/env bash
# Prints the requirements of a command before it starts, and fails if they are not met.
#
#   hack/needs.sh SET COLD WARM      SET: the command's set of hack/tools.sh. COLD, WARM: minutes that it takes on two cores with
#                                    nothing built, and with everything built
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator
wanted=$(awk '$1 == "go" {print $2}' "$root/go.mod")

if ! command -v go >/dev/null; then
  echo "Go is not installed. Install Go $wanted or newer: https://go.dev/doc/install" >&2
  exit 1
fi
if [[ -d ${SCO_SETS:-$cache/sets}/$1 ]]; then
  echo "This takes about $3 minutes on two cores; tools and control plane are already built"
  exit
fi

# free_gigabytes PATH prints the free space of the file system of PATH, which may not exist yet.
free_gigabytes() {
  local path=$1
  while [[ ! -e $path ]]; do path=$(dirname "$path"); done
  df --output=avail -B 1G "$path" 2>/dev/null | tail -n 1 | tr -d ' '
}

caches=("$cache" "$(go env GOCACHE)" "$(go env GOMODCACHE)")
echo "The first run builds a control plane from source: about $2 minutes on two cores (later runs: $3), and 8 GB of disk in"
printf '  %s\n' "${caches[@]}"
echo "It needs Go $wanted or newer (here: $(go env GOVERSION)) and a Go module proxy"
for path in "${caches[@]}"; do
  free=$(free_gigabytes "$path")
  if [[ -n $free ]] && ((free < 8)); then
    echo "WARNING: only $free GB are free for $path"
  fi
done
