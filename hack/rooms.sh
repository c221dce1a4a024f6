#!/usr/bin/env bash
# Prints the imports between packages as a Mermaid diagram. "make verify" compares it with docs/development/packages.md, and fails on a
# circle or an import of a parent package. "hack/rooms.sh imports" prints the packages of the project that each folder may import, from the
# linter's configuration; "make verify" compares it with CONTRIBUTING.md.
set -euo pipefail

cd "$(dirname "$0")/.."
module=$(go list -m)

# imports prints a row for each folder: the paths that its list of depguard allows below the module, but for those of tests.
imports() {
  printf '| folder | can import |\n|---|---|\n'
  awk -v module="$module/" '
    /^      rules:/ { on = 1; next }
    on && /^    [a-z]/ { exit }
    on && /^        [a-z]+:/ { room = $1; sub(":", "", room); next }
    on && /files: / && match($0, /config-path}\/[a-z\/]+\//) {
      folder[room] = substr($0, RSTART + 13, RLENGTH - 14); order[++count] = room
      next
    }
    on && index($2, module) == 1 {
      path = substr($2, length(module) + 1); sub(/\$$/, "", path)
      if (path !~ /^test\// && path != folder[room] && room in folder) list[room] = list[room] (list[room] ? ", " : "") "`" path "`"
    }
    END {
      for (i = 1; i <= count; i++) { room = order[i]; print "| `" folder[room] "` | " (list[room] ? list[room] : "nothing") " |" }
      print "| `cmd`, `test` | all |"
    }' .golangci.yaml
}
if [[ ${1-} == imports ]]; then
  imports
  exit
fi

# arrows prints the imports between packages. agent/host, controllers/internal, tuning and api count as one package each.
arrows() {
  go list -f '{{$from := .ImportPath}}{{range .Imports}}{{$from}} {{.}}{{"\n"}}{{end}}' ./api/... ./tuning/... ./controllers/... ./agent/... ./cmd/... |
    awk -v module="$module/" '
      function room(path) {
        if (index(path, module) != 1) return ""
        path = substr(path, length(module) + 1)
        if (path ~ /^(api|tuning)\//) sub(/\/.*/, "", path)
        if (path ~ /^controllers\/internal\//) return "controllers/internal"
        if (path ~ /^agent\/host\//) return "agent/host"
        if (path ~ /^cmd\/kubectl-storageclient/) return "cmd/kubectl-storageclient"
        return path
      }
      { from = room($1); to = room($2); if (from != "" && to != "" && from != to) print from, to }' |
    grep -v '/hosttest' | sort -u
}

all=$(arrows)
if ! circle=$(tsort <<<"$all" 2>&1 >/dev/null); then
  printf 'Packages import each other in a circle:\n%s\n' "$circle" >&2
  exit 1
fi
if up=$(awk '$1 != $2 && index($1, $2 "/") == 1' <<<"$all") && [[ -n $up ]]; then
  printf 'Packages import a parent package:\n%s\n' "$up" >&2
  exit 1
fi

# All packages import api and most import tuning: the diagram has one of these arrows for each program.
echo 'flowchart LR'
echo '  cmd --> controllers --> tuning --> api'
echo '  cmd --> agent --> tuning'
for house in controllers agent; do
  echo "  subgraph $house"
  awk -v house="$house" '
    # Mermaid identifies a box by its name, which must differ between the two programs, and shows its label.
    function box(room,   name, label) {
      name = room; gsub("/", "_", name)
      label = room; sub("^" house "/", "", label)
      return name (label == name ? "_" : "") "[" label "]"
    }
    index($1, house) == 1 && index($2, house) == 1 { print "    " box($1) " --> " box($2) }' <<<"$all"
  echo '  end'
done
