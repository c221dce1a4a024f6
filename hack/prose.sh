#!/usr/bin/env bash
# Lints the English of Markdown, Go comments, Go messages and declared names with Vale and the style of hack/prose. No file may get worse:
# hack/prose/baseline.txt has the number of findings of each file. All other files must have none.
#
#   VALE=PROGRAM hack/prose.sh                  fails if a file has more findings than the baseline
#   VALE=PROGRAM hack/prose.sh -update          writes the baseline
#   VALE=PROGRAM hack/prose.sh show PATH...     prints all findings of these files
set -euo pipefail

cd "$(dirname "$0")/.."
vale=${VALE:-vale}
style=hack/prose

# find_in PATH... prints the findings, a line each. Pages that programs write are left out: their source is linted.
find_in() {
  local config
  # Comments and Markdown, messages, and names are three runs: Vale joins neighboring items of one kind.
  for config in .vale.ini .vale-messages.ini .vale-names.ini; do
    "$vale" --config="$style/$config" --no-global --no-exit --output=line \
      --glob='!{docs/{api,reference,knowledge,drivers,platforms,mutations}.md,**/zz_generated*}' "$@"
  done
}

if [[ ${1-} == show ]]; then
  shift
  find_in "$@"
  exit
fi

found=$(mktemp) now=$(mktemp)
trap 'rm -f "$found" "$now"' EXIT
find_in README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs api agent cmd controllers tuning >"$found"
cut -d: -f1 "$found" | LC_ALL=C sort | uniq -c | awk '{print $2, $1}' >"$now"
if [[ ${1-} == -update ]]; then
  cp "$now" "$style/baseline.txt"
  exit
fi
worse=$(LC_ALL=C join -a1 -e0 -o 0,1.2,2.2 "$now" "$style/baseline.txt" | awk '$2 > $3 {print $1}')
if [[ -n $worse ]]; then
  while read -r file; do grep -F "$file:" "$found"; done <<<"$worse" >&2
  echo "prose: these files have more findings than $style/baseline.txt allows" >&2
  exit 1
fi
echo "prose: $(wc -l <"$found") findings left in $(wc -l <"$now") files, no file has more than before"
