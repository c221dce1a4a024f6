#!/usr/bin/env bash
# Records how releases of tuned start the profiles of a test: agent/host/tuned/testdata/started.txt. Then it runs the test.
#
#   hack/tuned.sh [DIR:DIR...]    directories with releases, for example from "dpkg-deb -x". Default: those of Debian's suites
#
# The default needs dpkg-deb and curl. Python needs configobj for releases before 2.17, and procfs (linux-procfs) before 2.11.
set -euo pipefail

cd "$(dirname "$0")/.."
releases=${1:-}
if [[ -z $releases ]]; then
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  # The mirror of this machine, as in test/boots/run.sh.
  mirror=${DEBIAN_MIRROR:-$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)}
  [[ -n $mirror ]] || { echo 'hack/tuned.sh: no Debian mirror in /etc/apt/sources.list.d; set DEBIAN_MIRROR=URL' >&2; exit 1; }
  for version in 2.20.0-1 2.25.1-1 2.27.0-1; do
    curl -fsS -o "$dir/tuned.deb" "$mirror/pool/main/t/tuned/tuned_${version}_all.deb"
    dpkg-deb -x "$dir/tuned.deb" "$dir/${version%-*}"
    releases+=${releases:+:}$dir/${version%-*}
  done
fi
SCO_TUNED=$releases go test -count=1 -run AsTunedReads ./agent/host/tuned
