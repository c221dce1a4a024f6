#!/usr/bin/env bash
# Removes the operator from a cluster after it has put back what it changed: deletes the profiles, waits until they and
# all StorageClientNodes are gone, then deletes the objects of the manifest.
#
#   KUBECTL="kubectl --context c" TIMEOUT=1800 FORCE=1 hack/uninstall.sh dist/install.yaml
#
# TIMEOUT bounds the wait in seconds (default 1800). FORCE=1 removes the operator although nodes or volumes are not
# restored: their settings stay, and nobody is left to put them back.
set -euo pipefail

manifest=$1
read -ra kubectl <<<"${KUBECTL:-kubectl}"
timeout=${TIMEOUT:-1800}
force=${FORCE:-}
group=tuning.storageclient.dev
trials=storage-client-trial

# left KIND COLUMNS prints what is left of a kind: one line for each object.
left() {
  "${kubectl[@]}" get "$1.$group" --no-headers --request-timeout=20s -o custom-columns="$2"
}

# summary LABEL names the first three lines that it reads and counts the rest.
summary() {
  awk -v label="$1" '
    NF {n++; if (n <= 3) {name = $1; $1 = ""; gsub(/<none>/, ""); gsub(/^ +| +$/, ""); text = text (n > 1 ? ", " : "") name ($0 == "" ? "" : " (" $0 ")")}}
    END {if (n) print n " " label (n > 1 ? "s" : "") ": " text (n > 3 ? " and " n - 3 " more" : "")}'
}

# waiting prints what is not restored yet; nothing once all is.
waiting() {
  local profiles nodes
  profiles=$(left storageclientprofiles NAME:.metadata.name) &&
    nodes=$(left storageclientnodes NAME:.metadata.name,PHASE:.status.rollout.phase,REASON:.status.rollout.reason) || {
    echo "the API server, which did not answer"
    return
  }
  summary profile <<<"$profiles"
  summary node <<<"$nodes"
}

# wait_until_restored returns 1 when the time is over.
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

# conditions prints the name of a Node and the type of a condition of ours, line by line. Maintenance has types that others set too.
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
      echo 'The operator stays, to restore them. Run this again, or with FORCE=1 to leave them as they are.' >&2
      exit 1
    fi
    echo 'FORCE=1: leaving them as they are'
    # Without the manager nobody would serve the finalizers, and the deletion of the definitions would wait for ever.
    left storageclientprofiles NAME:.metadata.name | while read -r name; do
      "${kubectl[@]}" patch "storageclientprofiles.$group" "$name" --field-manager=storageclient-plugin --type=merge -p '{"metadata":{"finalizers":null}}'
    done
  fi
fi
# Trials that run end with the manager: nobody is left to judge them.
"${kubectl[@]}" delete "storageclienttrials.$group" --all --all-namespaces --ignore-not-found --timeout=2m ||
  echo "StorageClientTrials could not be deleted: they go with their definition." >&2
# The manager takes the label of trials off by itself; one that was ended in between has not.
"${kubectl[@]}" label nodes --field-manager=storageclient-plugin --selector "$group/trial" "$group/trial-" >/dev/null
# Nor has it collected the clone of a probe: the names are those that it gives them.
for kind in pods persistentvolumeclaims persistentvolumes; do
  "${kubectl[@]}" get "$kind" --namespace "$trials" --selector "$group/trial" -o name | { grep "/$trials-" || true; } |
    xargs -r "${kubectl[@]}" delete --namespace "$trials" --ignore-not-found --timeout=2m
done
echo 'Deleting the operator'
"${kubectl[@]}" delete -f "$manifest" --ignore-not-found --timeout=5m
# The manager takes label and conditions off a Node after its StorageClientNode, the last of all, and may be gone by then.
"${kubectl[@]}" label nodes --field-manager=storageclient-plugin --selector "$group/managed" "$group/managed-" >/dev/null
conditions | while read -r node type; do
  "${kubectl[@]}" patch node "$node" --subresource=status --field-manager=storageclient-plugin --type=strategic -p "{\"status\":{\"conditions\":[{\"type\":\"$type\",\"\$patch\":\"delete\"}]}}"
done
