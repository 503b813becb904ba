#!/usr/bin/env bash
# Prints a go.mod for `go build -modfile` with a copy of Kubernetes that has
# zz_generated.openapi.go, which the modules up to 1.23 lack. The file is made by
# the openapi-gen of that version and kept in FOLDER; the copy is made in TREE,
# which the caller removes.
# Usage: hack/modules/openapi.sh 1.23 FOLDER TREE
set -euo pipefail

folder="$(cd "$2" && pwd)"
tree="$(cd "$3" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/kubernetes-$1"
file=pkg/generated/openapi/zz_generated.openapi.go
made="$folder/openapi.txt"

if [ ! -e "$made" ]; then
  go build -o "$tree/openapi-gen" k8s.io/kube-openapi/cmd/openapi-gen
  # The generator expects a GOPATH, and does not know how newer compilers represent aliases.
  go mod vendor -o "$tree/src"
  packages="$(cd "$tree/src" && grep -rl --include='*.go' '+k8s:openapi-gen=' k8s.io | xargs -n1 dirname | LC_ALL=C sort -u | grep -v -e kube-openapi -e gengo)"
  (cd "$tree/src" && GODEBUG=gotypesalias=0 GO111MODULE=off GOFLAGS='' GOPATH="$tree" "$tree/openapi-gen" -i "$(paste -sd, <<<"$packages")" \
    -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -h /dev/null -r "$tree/violations" -o "$tree/out" >&2)
  cp "$tree/out/k8s.io/kubernetes/$file" "$made"
fi

cp -R "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" "$tree/kubernetes"
chmod -R u+w "$tree/kubernetes"
cp "$made" "$tree/kubernetes/$file"
cp go.mod go.sum "$tree/"
go mod edit "-replace=k8s.io/kubernetes=$tree/kubernetes" "$tree/go.mod"
echo "$tree/go.mod"
