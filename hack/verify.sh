#!/usr/bin/env bash
# Checks that generated and formatted files are current. It changes no file of the tree: it generates everything in a copy and
# compares. Run by "make verify", which sets CONTROLLER_GEN and KUSTOMIZE.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=()

# check NAME COMMAND... runs a command and prints its time, and its output only if it fails.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$copy/output" 2>&1; then
    printf '%-62s %4d s  ok\n' "$name" $((SECONDS - start))
  else
    printf '%-62s %4d s  FAILED\n' "$name" $((SECONDS - start))
    head -n 80 "$copy/output" | sed 's/^/    /'
    failed+=("$name")
  fi
}

# The tree as a commit of everything would have it.
copy_tree() {
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do
      if [[ -f $file ]]; then printf '%s\0' "$file"; fi
    done | xargs -0 cp --parents -t "$copy/tree"
}

generated() {
  make -C "$copy/tree" --no-print-directory generate manifests || return
  local stale=0
  diff -ruN api "$copy/tree/api" || stale=1
  diff -ruN config "$copy/tree/config" || stale=1
  diff -ruN docs "$copy/tree/docs" || stale=1
  if ((stale)); then
    echo 'Run "make generate manifests" and commit the result'
    return 1
  fi
}

untracked() {
  local files
  files=$(git ls-files --others --exclude-standard)
  if [[ -n $files ]]; then
    echo "$files"
    echo 'Add these files, or ignore them'
    return 1
  fi
}

formatted() {
  local files
  files=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 ls -d 2>/dev/null | xargs gofmt -s -l)
  if [[ -n $files ]]; then
    echo "$files"
    echo 'Run "make fmt"'
    return 1
  fi
}

# A component can only be built as a part of something, and with an example of what its users supply.
overlay() {
  local dir=$1 resources='../config/default' example
  if grep -q '^kind: Component$' "$dir/kustomization.yaml"; then
    mkdir -p "$copy/tree/overlay"
    for example in "$dir"/*.example.yaml; do
      if [[ -f $example ]]; then
        cp "$example" "$copy/tree/overlay"
        resources+=", ${example##*/}"
      fi
    done
    printf 'resources: [%s]\ncomponents: [../%s]\n' "$resources" "$dir" >"$copy/tree/overlay/kustomization.yaml"
    dir=$copy/tree/overlay
  fi
  "$KUSTOMIZE" build "$dir"
}

# The diagram of docs/development/packages.md and the table of CONTRIBUTING.md, each between its two marks.
rooms() {
  diff <(sed -n '/^<!-- rooms -->$/,/^<!-- \/rooms -->$/p' docs/development/packages.md | grep -v -e '^<!--' -e '^```') <(hack/rooms.sh) ||
    { echo 'Copy the output of hack/rooms.sh between the marks in docs/development/packages.md'; return 1; }
  diff <(sed -n '/^<!-- imports -->$/,/^<!-- \/imports -->$/p' CONTRIBUTING.md | grep -v '^<!--') <(hack/rooms.sh imports) ||
    { echo 'Copy the output of "hack/rooms.sh imports" between the marks in CONTRIBUTING.md'; return 1; }
}

scripts() {
  git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run | xargs -0 -n 1 bash -n
}

mkdir "$copy/tree"
copy_tree
check 'generated files' generated
check 'formatting' formatted
for module in $(find . -name go.mod -not -path './bin/*' -not -path './dist/*' | sort); do
  check "go mod tidy in $(dirname "$module")" go -C "$(dirname "$module")" mod tidy -diff
done
# The linters vet the main module, tests behind build tags included. To vet test/gitops takes minutes, for all that it imports.
check 'go vet in hack/images' go -C hack/images vet ./...
for file in $(find config -name kustomization.yaml | sort); do
  check "kustomize build $(dirname "$file")" overlay "$(dirname "$file")"
done
check 'imports of the packages' rooms
check 'scripts' scripts
check 'untracked files' untracked

if ((${#failed[@]} > 0)); then
  printf '\nNot current: %s\n' "${failed[*]}"
  exit 1
fi
