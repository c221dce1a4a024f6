#!/usr/bin/env bash
# Prints which of the given packages have tests that run goroutines: the race detector can find nothing in the others. These are packages
# whose own code or tests start one, by a statement or by a function that does, and those that use such a package of this module.
set -euo pipefail

cd "$(dirname "$0")/.."
# The beginning of each line is there for comments. httptest.NewRecorder and NewRequest start nothing.
starts='^[^/]*(\<go (func\>|[[:alpha:]_][[:alnum:]_.]*\()|\.Go\(|\<t\.Parallel\(\)|\<httptest\.New([[:alpha:]]*Server)\(|\<http\.(Serve|Listen)[[:alpha:]]*\(|\<AfterFunc\(|\.AfterFunc\(|\<ctrl\.NewManager\()'

# starting TEMPLATE PACKAGE... prints the packages that have a file of a list of go list which starts goroutines.
starting() {
  local template=$1
  shift
  go list -f "{{\$package := .}}{{range $template}}{{\$package.Dir}}/{{.}} {{\$package.ImportPath}}{{\"\n\"}}{{end}}" "$@" | while read -r file package; do
    if grep -qE "$starts" "$file"; then
      echo "$package"
    fi
  done | sort -u
}

starters=$(starting .GoFiles ./...)
tests=$(starting .TestGoFiles "$@"; starting .XTestGoFiles "$@")
go list -test -f '{{.ImportPath}} {{join .Deps " "}}' "$@" | awk -v starters="$starters" -v tests="$tests" '
  BEGIN {
    split(starters, list, "\n"); for (i in list) starter[list[i]]
    split(tests, list, "\n"); for (i in list) own[list[i]]
  }
  sub(/\.test$/, "", $1) {
    hit = $1 in own
    for (i = 2; i <= NF && !hit; i++) hit = $i in starter
    if (hit) print $1
  }'
