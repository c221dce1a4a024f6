#!/usr/bin/env bash
# Lists the slowest tests and specs of a run, with their seconds. Needs jq.
#
#   hack/slowest.sh DIR NUMBER     DIR: what hack/gotest.sh has written, *.json, and reports of Ginkgo, *.specs
set -euo pipefail
shopt -s nullglob

dir=$1
{
  # A test with subtests is left out: its time is theirs.
  for file in "$dir"/*.json; do
    jq -rs --arg step "$(basename "$file" .json)" '
      map(select(.Test and (.Action == "pass" or .Action == "fail"))) as $all
      | ($all | map(.Test | split("/") | select(length > 1) | .[:-1] | join("/")) | unique) as $parents
      | $all[] | select(.Test as $test | $parents | index($test) | not)
      | [.Elapsed, $step, "\(.Package | ltrimstr("github.com/storageclient/operator/")) \(.Test)"] | @tsv' "$file"
  done
  for file in "$dir"/*.specs; do
    jq -r --arg step "$(basename "$file" .specs)" '
      .[].SpecReports[]? | select(.RunTime > 0)
      | [.RunTime / 1e9, $step, (if .LeafNodeText == "" then .LeafNodeType else (.ContainerHierarchyTexts // []) + [.LeafNodeText] | join(" ") end)] | @tsv' "$file"
  done
} | sort -rn | awk -F '\t' -v most="$2" 'NR <= most {printf "%8.1f s  %-12s %s\n", $1, $2, substr($3, 1, 150)}'
