#!/usr/bin/env bash
# Runs targets of make in a fresh clone of the current commit, with empty caches of tools and Go. Prints the time and the disk space of
# each. Takes about twenty minutes on two idle cores, and 8 GB.
#
#   hack/fresh.sh [TARGET...]      by default: demo test test-chart
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/fresh.XXXXXX")
# The module cache is read-only.
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

git clone -q "$root" "$work/clone"
export XDG_CACHE_HOME=$work/cache GOCACHE=$work/go-build GOMODCACHE=$work/go-mod
unset KUBEBUILDER_ASSETS GOFLAGS

(($# > 0)) || set -- demo test test-chart
results=() code=0
for target in "$@"; do
  began=$SECONDS
  make -C "$work/clone" --no-print-directory "$target" || code=$?
  results+=("$(printf 'make %-10s %5d s   exit code %d   %5d MB so far' "$target" $((SECONDS - began)) "$code" \
    "$(du -sm "$work" | cut -f 1)")")
  ((code == 0)) || break
done
printf '%s\n' '' "${results[@]}"
exit "$code"
