#!/usr/bin/env bash
# Runs "go test", without its vet: "make lint" vets, and to vet for every test binary takes minutes. A package that hangs ends after an hour: Go's
# ten minutes are too short next to other work. With SCO_TIMES=DIR, the time of every test is also written to DIR/NAME.json, by gotestsum:
# hack/slowest.sh lists the slowest.
#
#   hack/gotest.sh NAME GO-TEST-ARGUMENT...
set -euo pipefail

name=$1
shift
set -- -vet=off -timeout 60m "$@"
if [[ -z ${SCO_TIMES-} ]]; then
  exec go test "$@"
fi
format=standard-quiet
case " $* " in *' -v '*) format=standard-verbose ;; esac
exec "${GOTESTSUM:-gotestsum}" --format "$format" --hide-summary=skipped --jsonfile-timing-events "$SCO_TIMES/$name.json" -- "$@"
