#!/usr/bin/env bash
# Checks what changed, before a commit: formatting, linters (go vet is one of them) and the unit tests of what changed and of what imports it.
# Tests run in order of distance from the change, until CHECK_SECONDS have passed; the packages left out are listed. Run by "make check",
# which sets GOLANGCI_LINT.
#
#   hack/check.sh [REVISION]     the change since REVISION; by default what is not committed yet, or else the last commit
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
source hack/progress.sh
limit=${CHECK_SECONDS:-120}
module=$(awk '$1 == "module" {print $2}' go.mod)
base=${1:-HEAD}
if [[ $# == 0 && -z $(git status --porcelain) ]]; then
  base=HEAD~1
fi

mapfile -t files < <({ git diff --name-only --no-renames "$base"; git ls-files --others --exclude-standard; } | sort -u)
if ((${#files[@]} == 0)); then
  echo "Nothing changed since $base"
  exit
fi
echo "${#files[@]} files changed since $(git describe --always "$base")"

declare -A changed=() tests_only=()
go_files=() others=()
for file in "${files[@]}"; do
  case $file in
    *.sh | .ci/run) [[ ! -f $file ]] || bash -n "$file" ;;
  esac
  # The package that a file belongs to, or that holds the directory it is in, as of test data.
  dir=$(dirname "$file")
  while [[ $dir != . && -z $(compgen -G "$dir/*.go") && ! -f $dir/go.mod ]]; do dir=$(dirname "$dir"); done
  own=$dir
  while [[ $own != . && ! -f $own/go.mod ]]; do own=$(dirname "$own"); done
  if [[ $dir == . || $own != . ]]; then
    others+=("$file")
    continue
  fi
  [[ $file != *.go || ! -f $file ]] || go_files+=("$file")
  if [[ -z ${changed[$dir]-} ]]; then
    changed[$dir]=1 tests_only[$dir]=1
  fi
  case $file in
    *_test.go | */testdata/*) ;;
    *) tests_only[$dir]='' ;;
  esac
done

if ((${#go_files[@]} > 0)); then
  unformatted=$(gofmt -s -l "${go_files[@]}")
  if [[ -n $unformatted ]]; then
    printf '%s\nRun "make fmt"\n' "$unformatted" >&2
    exit 1
  fi
fi
if ((${#changed[@]} > 0)); then
  echo "Linting ${#changed[@]} packages"
  watch 'linters' "$GOLANGCI_LINT" run --timeout 0 "${!changed[@]}"
fi

# packages_by_distance prints "DISTANCE PACKAGE": the changed packages, then those that import them. Nobody imports tests, so a package
# whose tests alone changed, or whose tests alone import a changed package, is the end of its chain.
packages_by_distance() {
  for dir in "${!changed[@]}"; do echo "start $module/$dir ${tests_only[$dir]:-0}"; done
  go list -e -f '{{$p := .ImportPath}}{{range .Imports}}import {{$p}} {{.}}
{{end}}{{range .TestImports}}test {{$p}} {{.}}
{{end}}{{range .XTestImports}}test {{$p}} {{.}}
{{end}}' ./...
}
mapfile -t order < <(packages_by_distance | awk -v module="$module/" '
  $1 == "start" { distance[$2] = 0; if (!$3) queue[++last] = $2; next }
  index($3, module) == 1 { if ($1 == "import") importers[$3] = importers[$3] " " $2; else testers[$3] = testers[$3] " " $2 }
  END {
    for (first = 1; first <= last; first++) {
      package = queue[first]
      count = split(importers[package], list, " ")
      for (i = 1; i <= count; i++) if (!(list[i] in distance)) { distance[list[i]] = distance[package] + 1; queue[++last] = list[i] }
      count = split(testers[package], list, " ")
      for (i = 1; i <= count; i++) if (!(list[i] in distance)) late[list[i]] = late[list[i]] ? late[list[i]] : distance[package] + 1
    }
    for (package in late) if (!(package in distance)) distance[package] = late[package]
    for (package in distance) print distance[package], package
  }' | grep -v "$module/test/integration\$" | sort -n)

# Packages with nothing to run cost nothing, and are not listed as left out.
mapfile -t tested < <(printf '%s\n' "${order[@]#* }" | xargs -r go list -e -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}')
batch=4 position=0
while ((position < ${#tested[@]} && SECONDS < limit)); do
  go test -vet=off "${tested[@]:position:batch}"
  position=$((position + batch))
done
printf '\n%d packages tested in %d s\n' "$((position < ${#tested[@]} ? position : ${#tested[@]}))" "$SECONDS"
if ((position < ${#tested[@]})); then
  echo "SKIPPED after $limit s (CHECK_SECONDS): the tests of $((${#tested[@]} - position)) packages, the furthest from the change:"
  printf '  %s\n' "${tested[@]:position}"
fi
if ((${#others[@]} > 0)); then
  printf 'SKIPPED: no unit test covers %s\n' "$(printf '%s, ' "${others[@]}" | sed 's/, $//')"
fi
echo 'SKIPPED: integration tests, attacks and simulated nodes; run: make test'
