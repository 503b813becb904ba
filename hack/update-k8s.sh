#!/usr/bin/env bash
# Moves the module to another version of Kubernetes. k8s.io/kubernetes names its
# staging modules by a version that is nowhere to be had, so each needs a
# replace line; this writes them all. Usage: hack/update-k8s.sh v1.36.3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version="${1:?usage: hack/update-k8s.sh v1.MINOR.PATCH}"
staging="v0.${version#v1.}"

gomod="$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')"
modules="$(sed -n 's/^\t\(k8s\.io\/[a-z0-9-]*\) v0\.0\.0$/\1/p' "$gomod" | sort -u)"

edits=()
for module in $modules; do
  edits+=("-replace=$module=$module@$staging")
done
go mod edit -require="k8s.io/kubernetes@$version" "${edits[@]}"
for module in k8s.io/api k8s.io/apimachinery k8s.io/client-go; do
  go mod edit -require="$module@$staging"
done
go mod tidy
