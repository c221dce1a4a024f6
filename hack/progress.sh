#!/usr/bin/env bash
# Runs a command that may be silent for minutes, and shows that it works. hack/tools.sh sources its functions.
#
#   hack/progress.sh compile NAME COMMAND...   COMMAND is a "go build -v": shows the progress of downloads and compilation,
#                                              and its output only if it fails; a build that takes no time prints nothing
#   hack/progress.sh compile_imports PACKAGE...   compiles all that these packages and their tests import
#   hack/progress.sh watch NAME COMMAND...     shows the output as it comes, and after 15 s of silence how long it takes

# compile NAME COMMAND...
compile() {
  local name=$1 log code=0
  shift
  log=$(mktemp "${TMPDIR:-/tmp}/compile.XXXXXX")
  "$@" >"$log" 2>&1 &
  show_progress $! "$name" "$log" || code=$?
  ((code == 0)) || grep -v '^[^ :]*$' "$log" >&2 || true
  rm -f "$log"
  return "$code"
}

# compile_imports PACKAGE...
compile_imports() {
  local imports
  imports=$(go list -deps -test -f '{{if and .GoFiles (not .ForTest) (ne .Name "main")}}{{.ImportPath}}{{end}}' "$@")
  compile 'packages of the tests' go build -v $imports
}

# show_progress PID NAME LOG reports on a build until it ends, and returns its exit code. On a terminal it keeps to one line.
show_progress() {
  local pid=$1 name=$2 log=$3 start=$SECONDS shown=-1 every=15 end='\n' code=0
  if [[ -t 1 ]]; then every=1 end='\033[K\r'; fi
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS > start + 1 && (shown < 0 || SECONDS - shown >= every))); then
      shown=$SECONDS
      printf "%-26s %4d s  %s$end" "$name" $((SECONDS - start)) "$(describe_build "$log")"
    fi
  done
  wait "$pid" || code=$?
  if ((shown >= 0 && code == 0)); then
    printf '%-26s %4d s  done\n' "$name" $((SECONDS - start))
  fi
  return "$code"
}

# describe_build LOG prints the progress of "go build -v".
describe_build() {
  if [[ -s $1 ]]; then
    printf '%5d modules and packages, now %s' "$(wc -l <"$1")" "$(tail -n 1 "$1" | cut -c 1-60)"
  else
    echo 'building'
  fi
}

# watch NAME COMMAND...
watch() {
  local name=$1 start=$SECONDS
  shift
  "$@" 2>&1 | pass_on "$name" "$start"
  return "${PIPESTATUS[0]}"
}

# pass_on NAME START prints its input. It prints an unfinished line when the input pauses.
pass_on() {
  local line code
  while true; do
    code=0
    IFS= read -r -t 15 line || code=$?
    if ((code == 0)); then
      printf '%s\n' "$line"
    elif ((code > 128)); then
      printf '%s%-26s %4d s\n' "${line:+$line }" "$1" $((SECONDS - $2))
    else
      printf '%s' "${line:+$line$'\n'}"
      return
    fi
  done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  # A build in the background would outlive Ctrl-C.
  trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
  case ${1:-} in
    compile | compile_imports | watch) "$@" ;;
    *)
      echo "usage: hack/progress.sh compile|compile_imports|watch ..." >&2
      exit 2
      ;;
  esac
fi
