#!/usr/bin/env bash
# Builds tools from the Go modules under hack/tools into the cache, and shows how far it is. A tool whose module, flags
# and Go version have not changed is reused. So is MkDocs, which comes from Python packages with the hashes of hack/site.
#
#   hack/tools.sh SET...     each target of make has a set, see "members"
#
# A set is the directory sets/SET in the cache (SCO_SETS names another directory of sets): links to what the set names and to nothing else. A test gets the directory of its
# set alone, so that a tool that somebody else has built cannot stand in for one that is missing in the set.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator
sets=${SCO_SETS:-$cache/sets}
source "$root/hack/progress.sh"

# members SET lists the tools of a set.
members() {
  case $1 in
    integration) echo etcd kube-apiserver kubectl kustomize ;;
    sandbox) echo etcd kube-apiserver kube-controller-manager kube-scheduler kwok ;;
    uninstall) echo etcd kube-apiserver kube-controller-manager kube-scheduler kwok kubectl kustomize ;;
    footprint) echo etcd kube-apiserver ;;
    chart) echo etcd kube-apiserver kustomize helm ;;
    gitops) echo etcd kube-apiserver kube-controller-manager kube-scheduler kwok kubectl kustomize helm argocd kustomize-controller ;;
    e2e)
      echo etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl
      echo containerd containerd-shim-runc-v2 ctr
      ;;
    controller-gen | crd-ref-docs | golangci-lint | gotestsum | govulncheck | kustomize | helm | vale) echo "$1" ;;
    site) echo mkdocs ;;
    *)
      echo "hack/tools.sh: unknown set \"$1\"" >&2
      return 2
      ;;
  esac
}

# build TOOL builds one tool into the cache.
build() {
  local small='-s -w'
  case $1 in
    etcd) go_build etcd etcd go.etcd.io/etcd/server/v3 -ldflags "$small" ;;
    kube*)
      local version
      version=$(awk '$1 == "k8s.io/kubernetes" {print $2}' "$root/hack/tools/kubernetes/go.mod")
      go_build "$1" kubernetes "k8s.io/kubernetes/cmd/$1" -ldflags "$small -X k8s.io/component-base/version.gitVersion=$version"
      ;;
    containerd | containerd-shim-runc-v2 | ctr)
      go_build "$1" containerd "github.com/containerd/containerd/v2/cmd/$1" -ldflags "$small" -tags no_btrfs
      ;;
    controller-gen) go_build "$1" "$1" sigs.k8s.io/controller-tools/cmd/controller-gen -ldflags "$small" ;;
    crd-ref-docs) go_build "$1" "$1" github.com/elastic/crd-ref-docs -ldflags "$small" ;;
    # golangci-lint with kube-api-linter as its plug-in.
    golangci-lint) go_build "$1" "$1" sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter -ldflags "$small" ;;
    govulncheck) go_build "$1" "$1" golang.org/x/vuln/cmd/govulncheck -ldflags "$small" ;;
    gotestsum) go_build "$1" "$1" gotest.tools/gotestsum -ldflags "$small" ;;
    argocd) go_build "$1" "$1" github.com/argoproj/argo-cd/v3/cmd -ldflags "$small" ;;
    kustomize-controller) go_build "$1" "$1" github.com/fluxcd/kustomize-controller -ldflags "$small" ;;
    helm) go_build "$1" "$1" helm.sh/helm/v4/cmd/helm -ldflags "$small" ;;
    kustomize) go_build "$1" "$1" sigs.k8s.io/kustomize/kustomize/v5 -ldflags "$small" ;;
    kwok) go_build "$1" "$1" sigs.k8s.io/kwok/cmd/kwok -ldflags "$small" ;;
    # Its parser of Go is in C.
    vale) CGO_ENABLED=1 go_build "$1" "$1" github.com/vale-cli/vale/v3/cmd/vale -ldflags "$small" ;;
    mkdocs) python_install "$1" "$root/hack/site/requirements.txt" ;;
  esac
}

# is_current PROGRAM STAMP INPUTS reports whether a tool was built from these inputs.
is_current() { [[ -x $1 && -f $2 && $(<"$2") == "$3" ]]; }

# lock TOOL waits for others that build the same tool. The lock goes with the next one, or with this process.
lock() {
  exec 9>"$cache/bin/.$1.lock"
  if ! flock -n 9; then
    echo "Waiting for another make that builds $1 in $cache"
    flock 9
  fi
}

# go_build TOOL MODULE PACKAGE [FLAG...] builds a tool unless it exists and was built from the same inputs.
go_build() {
  local tool=$1 module=$root/hack/tools/$2 package=$3
  local output=$cache/bin/$1 stamp=$cache/bin/.$1.stamp inputs
  shift 3
  inputs=$({ cat "$module/go.mod" "$module/go.sum"; echo "$package $* $(go env GOVERSION)"; } | sha256sum)
  if is_current "$output" "$stamp" "$inputs"; then
    return
  fi
  lock "$tool"
  if is_current "$output" "$stamp" "$inputs"; then
    return
  fi
  compile "$tool" go -C "$module" build -v "$@" -o "$output.tmp" "$package"
  mv -f "$output.tmp" "$output"
  echo "$inputs" >"$stamp"
}

# python_install TOOL REQUIREMENTS installs a tool into a virtual environment of its own, unless one stands that was made from the
# same packages by the same Python. pip takes no file whose hash is not listed.
python_install() {
  local tool=$1 requirements=$2 environment=$cache/python/$1 stamp=$cache/bin/.$1.stamp inputs
  if ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "The site needs Python 3.11 or newer with venv (Debian 12: apt-get install python3-venv)" >&2
    exit 1
  fi
  inputs=$({ cat "$requirements"; python3 -c 'import sys; print(sys.executable, sys.version)'; } | sha256sum)
  if is_current "$environment/bin/$tool" "$stamp" "$inputs"; then
    return
  fi
  lock "$tool"
  if is_current "$environment/bin/$tool" "$stamp" "$inputs"; then
    return
  fi
  echo "Installing $tool"
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$requirements"
  ln -sfn "../python/$tool/bin/$tool" "$cache/bin/$tool"
  echo "$inputs" >"$stamp"
}

# link_set SET TOOL... makes the directory of a set hold these tools and nothing else.
link_set() {
  local directory=$sets/$1 entry
  shift
  mkdir -p "$directory"
  for entry in "$directory"/*; do
    [[ " $* " == *" ${entry##*/} "* ]] || rm -f "$entry"
  done
  for entry in "$@"; do
    ln -sfn "$cache/bin/$entry" "$directory/$entry"
  done
}

# A build in the background would outlive Ctrl-C.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# The flags of the Makefile: Go compiles a package that two tools or tests need once, if they need the same versions of all that it
# imports. So the tools of "make test", "make e2e" and "make verify" have the versions of the operator's go.mod.
export CGO_ENABLED=0 GOFLAGS='-mod=readonly -trimpath -gcflags=all=-dwarf=false' GOWORK=off
mkdir -p "$cache/bin"
for set in "$@"; do
  tools=$(members "$set")
  for tool in $tools; do
    build "$tool"
  done
  link_set "$set" $tools
done
