#!/usr/bin/env bash
# Removes the operator from a cluster after it has restored all nodes and volumes: deletes the profiles, waits until they and all
# StorageClientNodes are gone, then deletes the objects of the manifest.
#
#   KUBECTL="kubectl --context c" TIMEOUT=1800 FORCE=1 hack/uninstall.sh dist/install.yaml
#
# TIMEOUT bounds the wait in seconds (default 1800). FORCE=1 removes the operator even if nodes or volumes are not
# restored: their settings stay, and nothing can restore them afterwards.
set -euo pipefail

manifest=$1
read -ra kubectl <<<"${KUBECTL:-kubectl}"
timeout=${TIMEOUT:-1800}
force=${FORCE:-}
group=tuning.storageclient.dev

# left KIND COLUMNS prints the remaining objects of a kind, one per line.
left() {
  "${kubectl[@]}" get "$1.$group" --no-headers --request-timeout=20s -o custom-columns="$2"
}

# summary LABEL prints the first three lines of its input and counts the rest.
summary() {
  awk -v label="$1" '
    NF {n++; if (n <= 3) {name = $1; $1 = ""; gsub(/<none>/, ""); gsub(/^ +| +$/, ""); text = text (n > 1 ? ", " : "") name ($0 == "" ? "" : " (" $0 ")")}}
    END {if (n) print n " " label (n > 1 ? "s" : "") ": " text (n > 3 ? " and " n - 3 " more" : "")}'
}

# waiting prints the objects that are not restored yet. Empty if everything is restored.
waiting() {
  local profiles nodes
  profiles=$(left storageclientprofiles NAME:.metadata.name) &&
    nodes=$(left storageclientnodes NAME:.metadata.name,PHASE:.status.rollout.phase,REASON:.status.rollout.reason) || {
    echo "the API server: no response"
    return
  }
  summary profile <<<"$profiles"
  summary node <<<"$nodes"
}

# wait_until_restored returns 1 at the timeout.
wait_until_restored() {
  local start=$SECONDS said='' now
  while true; do
    now=$(waiting 2>/dev/null | paste -s -d ';' | sed 's/;/; /g')
    if [[ -z $now ]]; then
      printf '%5d s  everything is restored\n' $((SECONDS - start))
      return
    fi
    if [[ $now != "$said" ]]; then
      printf '%5d s  waiting for %s\n' $((SECONDS - start)) "$now"
      said=$now
    fi
    if ((SECONDS - start >= timeout)); then
      printf 'Not restored after %d s: %s\n' "$timeout" "$now" >&2
      return 1
    fi
    sleep 2
  done
}

# conditions prints Node and type of each condition that the operator set. Other programs also set the types of maintenance.
conditions() {
  "${kubectl[@]}" get nodes -o go-template='{{range .items}}{{$node := .metadata.name}}{{range .status.conditions}}{{/*
    */}}{{if or (eq .type "'"$group"'/Tuned") (eq .type "'"$group"'/StorageReachable") (eq (or .reason "") "StorageClientRollout")}}{{/*
    */}}{{$node}} {{.type}}{{"\n"}}{{end}}{{end}}{{end}}'
}

definition=$("${kubectl[@]}" get crd "storageclientprofiles.$group" --ignore-not-found -o name)
if [[ -n $definition ]]; then
  echo 'Deleting all StorageClientProfiles'
  "${kubectl[@]}" delete "storageclientprofiles.$group" --all --wait=false
  if ! wait_until_restored; then
    if [[ $force != 1 ]]; then
      echo 'The operator keeps running to restore them. Run this again, or set FORCE=1 to leave nodes and volumes unchanged' >&2
      exit 1
    fi
    echo 'FORCE=1: leaving nodes and volumes unchanged'
    # Without the manager, the finalizers would block the deletion of the definitions forever.
    left storageclientprofiles NAME:.metadata.name | while read -r name; do
      "${kubectl[@]}" patch "storageclientprofiles.$group" "$name" --field-manager=storageclient-plugin --type=merge -p '{"metadata":{"finalizers":null}}'
    done
  fi
fi
# Running trials end with the manager.
"${kubectl[@]}" delete "storageclienttrials.$group" --all --all-namespaces --ignore-not-found --timeout=2m ||
  echo "Failed to delete StorageClientTrials; they are deleted with their definition" >&2
# The manager removes the label of trials. If it stopped in between, the label is still there.
"${kubectl[@]}" label nodes --field-manager=storageclient-plugin --selector "$group/trial" "$group/trial-" >/dev/null
echo 'Deleting the operator'
"${kubectl[@]}" delete -f "$manifest" --ignore-not-found --timeout=5m
# The manager removes label and conditions of a Node last, after its StorageClientNode. It may be deleted before.
"${kubectl[@]}" label nodes --field-manager=storageclient-plugin --selector "$group/managed" "$group/managed-" >/dev/null
conditions | while read -r node type; do
  "${kubectl[@]}" patch node "$node" --subresource=status --field-manager=storageclient-plugin --type=strategic -p "{\"status\":{\"conditions\":[{\"type\":\"$type\",\"\$patch\":\"delete\"}]}}"
done
