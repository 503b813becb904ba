#!/usr/bin/env bash
# Prints the path of an overlay for `go build` with zz_generated.openapi.go, which
# the modules of Kubernetes up to 1.23 lack. It is made by the openapi-gen of that
# version, in the given folder. Usage: hack/compat/openapi.sh v1.23 FOLDER
set -euo pipefail

mkdir -p "$2"
folder="$(cd "$2" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/$1"
file=pkg/generated/openapi/zz_generated.openapi.go

if [ ! -e "$folder/overlay.json" ]; then
  tree="$(mktemp -d)"
  trap 'rm -rf "$tree"' EXIT
  go build -o "$tree/openapi-gen" k8s.io/kube-openapi/cmd/openapi-gen
  # The generator expects a GOPATH, and does not know how newer compilers represent aliases.
  go mod vendor -o "$tree/src"
  packages="$(cd "$tree/src" && grep -rl --include='*.go' '+k8s:openapi-gen=' k8s.io | xargs -n1 dirname | LC_ALL=C sort -u | grep -v -e kube-openapi -e gengo)"
  (cd "$tree/src" && GODEBUG=gotypesalias=0 GO111MODULE=off GOFLAGS='' GOPATH="$tree" "$tree/openapi-gen" -i "$(paste -sd, <<<"$packages")" \
    -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -h /dev/null -r "$tree/violations" -o "$tree/out" >&2)
  cp "$tree/out/k8s.io/kubernetes/$file" "$folder/"
  printf '{"Replace": {"%s": "%s"}}\n' "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)/$file" "$folder/${file##*/}" >"$folder/overlay.json"
fi
echo "$folder/overlay.json"
