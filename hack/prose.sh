#!/usr/bin/env bash
# Lints the English of Markdown, comments of Go and YAML, Go messages, declared names and embedded data with Vale and the style of hack/prose.
# There must be no finding.
#
#   VALE=PROGRAM hack/prose.sh [PATH...]        prints all findings, of these files if any are named
#
# An exception that only one text needs is a comment pair around it in Markdown, <!-- vale off --> and <!-- vale on -->. An exception for a
# name of the API or of another program is in the rule, with its reason.
set -euo pipefail

cd "$(dirname "$0")/.."
vale=${VALE:-vale}
others=()
if (($# == 0)); then
  set -- README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs api agent cmd controllers tuning
  others=(test hack config .github .golangci.yaml)
fi

found=$(mktemp)
trap 'rm -f "$found"' EXIT
# Comments and Markdown, messages, names, and embedded data are one run each: Vale joins neighboring items of one kind.
# Of tests, tools and manifests, only comments and Markdown are linted.
lint() {
  local config=$1
  shift
  "$vale" --config="hack/prose/$config" --no-global --no-exit --output=line \
    --glob='!**/zz_generated*' "$@" >>"$found"
}
lint .vale.ini "$@" "${others[@]}"
lint .vale-messages.ini "$@"
lint .vale-names.ini "$@"
lint .vale-data.ini "$@"
# Comments of embedded YAML are in two runs.
sort -u -o "$found" "$found"
if [[ -s $found ]]; then
  cat "$found" >&2
  echo "prose: $(wc -l <"$found") findings; docs/development/glossary.md and the messages of the rules say what to write" >&2
  exit 1
fi
echo 'prose: no finding'
