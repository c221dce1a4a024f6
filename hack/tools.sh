#!/usr/bin/env bash
# Builds tools from the Go modules under hack/tools into the cache, and shows how far it is. A tool whose module, flags
# and Go version have not changed is reused.
#
#   hack/tools.sh SET...     SET: envtest sandbox controlplane controller-gen kustomize golangci-lint kwok containerd
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator
kubernetes_version=$(awk '$1 == "k8s.io/kubernetes" {print $2}' "$root/hack/tools/kubernetes/go.mod")
controlplane=$cache/controlplane-$kubernetes_version
bin=$cache/bin

# go_build MODULE PACKAGE OUTPUT [FLAG...] builds one binary unless OUTPUT stands and was built from the same inputs.
go_build() {
  local module=$root/hack/tools/$1 package=$2 output=$3
  shift 3
  local stamp
  stamp=$(dirname "$output")/.$(basename "$output").stamp
  local inputs
  inputs=$({ cat "$module/go.mod" "$module/go.sum"; echo "$package $* $(go env GOVERSION)"; } | sha256sum)
  if [[ -x $output && -f $stamp && $(<"$stamp") == "$inputs" ]]; then
    return
  fi
  mkdir -p "$(dirname "$output")"
  local log=$output.log
  go -C "$module" build -v -trimpath "$@" -o "$output.tmp" "$package" >"$log" 2>&1 &
  show_progress $! "$(basename "$output")" "$log" || { tail -n 30 "$log" >&2; rm -f "$output.tmp"; exit 1; }
  mv -f "$output.tmp" "$output"
  echo "$inputs" >"$stamp"
  rm -f "$log"
}

# show_progress PID NAME LOG reports on a build until it ends, and returns its exit code. On a terminal it keeps to one line.
show_progress() {
  local pid=$1 name=$2 log=$3 start=$SECONDS shown=$SECONDS every=15 end='\n'
  if [[ -t 1 ]]; then every=1 end='\033[K\r'; fi
  printf '%-26s building\n' "$name"
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.3
    if ((SECONDS - shown >= every)); then
      shown=$SECONDS
      printf "%-26s %4d s  %s$end" "$name" $((SECONDS - start)) "$(progress "$log")"
    fi
  done
  wait "$pid" || return
  printf "%-26s %4d s  done\n" "$name" $((SECONDS - start))
}

# progress LOG tells how much "go build -v" has fetched and compiled.
progress() {
  if [[ -s $1 ]]; then
    printf '%5d modules and packages, now %s' "$(wc -l <"$1")" "$(tail -n 1 "$1" | cut -c 1-60)"
  else
    echo 'linking'
  fi
}

kubernetes() {
  for name in "$@"; do
    go_build kubernetes "k8s.io/kubernetes/cmd/$name" "$controlplane/$name" \
      -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version"
  done
}

build_set() {
  local small=(-ldflags '-s -w')
  case $1 in
    envtest)
      go_build etcd go.etcd.io/etcd/server/v3 "$controlplane/etcd" "${small[@]}"
      kubernetes kube-apiserver
      ;;
    sandbox)
      build_set envtest
      kubernetes kube-controller-manager kube-scheduler
      build_set kwok
      ;;
    controlplane)
      build_set envtest
      kubernetes kube-controller-manager kube-scheduler kubelet kube-proxy kubectl
      ;;
    controller-gen) go_build controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen "$bin/controller-gen" "${small[@]}" ;;
    kustomize) go_build kustomize sigs.k8s.io/kustomize/kustomize/v5 "$bin/kustomize" "${small[@]}" ;;
    golangci-lint) go_build golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$bin/golangci-lint" "${small[@]}" ;;
    kwok) go_build kwok sigs.k8s.io/kwok/cmd/kwok "$bin/kwok" "${small[@]}" ;;
    containerd)
      for name in containerd containerd-shim-runc-v2 ctr; do
        go_build containerd "github.com/containerd/containerd/v2/cmd/$name" "$bin/$name" "${small[@]}" -tags no_btrfs
      done
      ;;
    *)
      echo "hack/tools.sh: unknown set \"$1\"" >&2
      exit 2
      ;;
  esac
}

# A build in the background would outlive Ctrl-C.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
mkdir -p "$cache"
exec 9>"$cache/.lock"
if ! flock -n 9; then
  echo "Waiting for another make that builds tools in $cache"
  flock 9
fi
for set in "$@"; do
  build_set "$set"
done
