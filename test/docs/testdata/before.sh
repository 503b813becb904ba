#!/bin/bash
# Makes node gpu-1 of a cluster without Daybreak as HAMi or Koordinator leave it,
# for pages about migrations: the vendor plugin serves its GPUs, and a pod holds 30 %
# and 8 GiB of the first one. Usage: before.sh hami|koordinator, or before.sh clean.
set -eo pipefail
node=gpu-1
mapfile -t ids < <(daybreak agent --look --node-name $node --source simulated 2>/dev/null | sed -n 's/^  UUID: //p')

pod() { # NAME SCHEDULER LIMITS ANNOTATIONS
  kubectl apply -f - <<END
{apiVersion: v1, kind: Pod, metadata: {name: $1, annotations: {$4, metax-tech.com/gpu-devices-allocated: '[[{"uuid":"${ids[0]}","compute":30,"vRam":8192}]]'}},
 spec: {schedulerName: $2, nodeName: $node, containers: [{name: main, image: none, command: [sleep, infinity], resources: {limits: {$3}}}]}}
END
  kubectl wait --for=condition=Ready pod/"$1" --timeout=60s
}

if [ "$1" = clean ]; then
  kubectl delete pods --all --now
  kubectl annotate node $node metax-tech.com/node-gpu-devices- daybreak-gpu.io/served-by- hami.io/mutex.lock- daybreak-gpu.io/advertised-
  kubectl label node $node metax-tech.com/gpu.installed-
  kubectl delete clusterrole koordlet-role --ignore-not-found
  kubectl delete clusterrolebinding koordlet-rolebinding --ignore-not-found
  exit
fi

kubectl label node $node metax-tech.com/gpu.installed=true
cards=
for i in "${!ids[@]}"; do
  left='"availableDevCount":16,"availableCompute":100,"availableVRam":65536'
  if [ "$i" = 0 ]; then left='"availableDevCount":15,"availableCompute":70,"availableVRam":57344'; fi
  cards+=${cards:+,}'{"uuid":"'${ids[i]}'","healthy":true,"totalDevCount":16,"totalCompute":100,"totalVRam":65536,"linkZone":'$((i / 4 + 1))','$left'}'
done
kubectl annotate node $node metax-tech.com/node-gpu-devices="[$cards]"
kubectl patch node $node --subresource status --type merge \
  --patch '{"status":{"capacity":{"metax-tech.com/sgpu":"128"},"allocatable":{"metax-tech.com/sgpu":"128"}}}'
case $1 in
hami)
  pod online hami-scheduler 'metax-tech.com/sgpu: 1, metax-tech.com/vcore: 30, metax-tech.com/vmemory: 8' \
    "hami.io/vgpu-node: $node, hami.io/metax-sgpu-devices-allocated: '${ids[0]},Metax-SGPU,8192,30:;', metax-tech.com/sgpu-qos-policy: best-effort"
  chart=$TMPDIR/hami
  mkdir -p "$chart/templates"
  echo '{apiVersion: v2, name: hami, version: 2.9.0}' >"$chart/Chart.yaml"
  echo '{apiVersion: v1, kind: ServiceAccount, metadata: {name: hami-scheduler}}' >"$chart/templates/account.yaml"
  helm install hami "$chart" --namespace kube-system
  ;;
koordinator)
  kubectl apply -f api/v1alpha1/crd
  kubectl wait --for=condition=Established crd/devices.scheduling.koordinator.sh --timeout=60s
  kubectl create clusterrole koordlet-role --verb='*' --resource=devices.scheduling.koordinator.sh
  kubectl create clusterrolebinding koordlet-rolebinding --clusterrole=koordlet-role --serviceaccount=koordinator-system:koordlet
  devices=
  for i in "${!ids[@]}"; do
    devices+="{type: gpu, id: ${ids[i]}, minor: $i, health: true, resources: {koordinator.sh/gpu-core: '100', koordinator.sh/gpu-memory: 64Gi, koordinator.sh/gpu-memory-ratio: '100'}},"
  done
  kubectl apply --field-manager=koordlet -f - <<END
{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: $node, labels: {node.koordinator.sh/gpu-vendor: metax, node.koordinator.sh/gpu-model: C500}},
 spec: {devices: [$devices]}}
END
  pod online koord-scheduler "koordinator.sh/gpu.shared: 1, koordinator.sh/gpu-core: 30, koordinator.sh/gpu-memory: 8Gi, metax-tech.com/sgpu: 1" \
    "scheduling.koordinator.sh/device-allocated: '{\"gpu\":[{\"minor\":0,\"resources\":{\"koordinator.sh/gpu-core\":\"30\",\"koordinator.sh/gpu-memory\":\"8Gi\",\"koordinator.sh/gpu-memory-ratio\":\"12\"},\"id\":\"${ids[0]}\"}]}'"
  ;;
esac
