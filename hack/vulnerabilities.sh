#!/usr/bin/env bash
# Checks the programs for known vulnerabilities with GOVULNCHECK, and writes the result into a file. The first line is the verdict.
#
#   GOVULNCHECK=PROGRAM hack/vulnerabilities.sh FILE
#
# Exit status: 0 none is reachable, 3 at least one is, 4 not checked, because the database or the program is not available.
set -euo pipefail

file=$1 code=0
cd "$(dirname "$0")/.."
result=$("${GOVULNCHECK:?set it to the program govulncheck}" -show version ./cmd/... 2>&1) || code=$?
case $code in
  0) verdict='No known vulnerability is reachable (govulncheck).' ;;
  3) verdict='KNOWN VULNERABILITIES ARE REACHABLE (govulncheck).' ;;
  *) verdict='NOT CHECKED FOR KNOWN VULNERABILITIES: govulncheck failed.' code=4 ;;
esac
printf '%s\n\n%s\n' "$verdict" "$result" >"$file"
[[ $code == 0 ]] || cat "$file" >&2
exit "$code"
