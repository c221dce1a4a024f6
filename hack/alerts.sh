#!/usr/bin/env bash
# Runs the test of the alert rules, and checks that the dashboards use existing metrics. promtool is in Debian's package prometheus;
# PROMTOOL names another one.
set -euo pipefail

cd "$(dirname "$0")/../config/components/prometheus"
promtool=${PROMTOOL:-promtool}
if ! command -v "$promtool" >/dev/null; then
  echo "promtool is missing: install Debian's package prometheus, or set PROMTOOL" >&2
  exit 1
fi
promtool=$(realpath "$(command -v "$promtool")")
"$promtool" check rules alerts.yaml
"$promtool" test rules alerts_test.yaml

# Each alert has a runbook, and each runbook an alert.
diff <(sed -n 's|.*runbook_url: .*/docs/runbooks/||p' alerts.yaml | sort) <(cd ../../../docs/runbooks && ls ./*.md | sed 's|^./||' | sort)

# Every query of the dashboards.
cd ../../..
PROMTOOL=$promtool go test -count=1 -tags promtool ./test/dashboards
