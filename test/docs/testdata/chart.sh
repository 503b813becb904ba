#!/bin/bash
# Runs components of the chart on a cluster whose nodes run no containers, for
# pages that install it. Usage, in a block that a page needs:
#
#   chart.sh agent NODE    the agent of the node, with simulated GPUs
#   chart.sh manager       the manager, which the API server calls without a Service
#   chart.sh scheduler     the scheduler
#   chart.sh uninstall     ends them, and removes the chart and what it left
#
# Each runs in the background, with the arguments and as the service account that
# the chart gives it, in place of one that ran before.
set -eo pipefail
component=$1 node=$2 namespace=daybreak-system

stop() { # the component, if it runs
  local pid
  pid=$(cat "$TMPDIR/chart-$1.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

free() { # a port
  local p
  for p in $(seq $((20000 + RANDOM % 10000)) 40000); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then echo "$p"; return; fi
  done
}

if [ "$component" = uninstall ]; then
  for c in agent manager scheduler; do stop $c; done
  helm uninstall daybreak --namespace $namespace --wait
  kubectl delete namespace $namespace
  kubectl --namespace kube-system delete lease daybreak-scheduler --ignore-not-found
  kubectl delete devices --all
  exit
fi

stop "$component"
config=$TMPDIR/chart-$component.kubeconfig
account="as: system:serviceaccount:$namespace:daybreak-$component"
if [ -n "$node" ]; then account+="\n    as-user-extra: {authentication.kubernetes.io/node-name: [$node]}"; fi
kubectl config view --raw | sed "s|^  user:\$|  user:\n    $account|" >"$config"

workload=deployment/daybreak-$component
if [ "$component" = agent ]; then workload=daemonset/daybreak-agent; fi
mapfile -t args < <(kubectl --namespace $namespace get "$workload" \
  --output jsonpath='{range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
case $component in
agent)
  args+=(--node-name="$node" --source=simulated --namespace=$namespace --metrics-bind-address=0 --health-probe-bind-address=0)
  ;;
manager)
  args+=(--metrics-bind-address=0 --health-probe-bind-address=0 --dashboard-bind-address=0 --drain=0s)
  paths=$(kubectl get mutatingwebhookconfiguration daybreak --ignore-not-found --output jsonpath='{.webhooks[*].clientConfig.service.path}')
  if [ -n "$paths" ]; then
    address=127.0.0.1:$(free) i=0 patch=
    args+=(--admission-bind-address="$address" --admission-host=127.0.0.1)
    for path in $paths; do
      patch+=${patch:+,}'{"op":"replace","path":"/webhooks/'$i'/clientConfig","value":{"url":"https://'$address$path'"}}'
      i=$((i + 1))
    done
    kubectl patch mutatingwebhookconfiguration daybreak --type json --patch "[$patch]"
  fi
  ;;
scheduler)
  args+=(--secure-port="$(free)" --bind-address=127.0.0.1)
  ;;
esac
daybreak "${args[@]}" --kubeconfig "$config" >"$TMPDIR/chart-$component.log" 2>&1 &
echo $! >"$TMPDIR/chart-$component.pid"
