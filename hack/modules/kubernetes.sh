#!/usr/bin/env bash
# Writes hack/modules/kubernetes-1.MINOR/{go.mod,go.sum}, of which `make compat` builds the
# parts of another version of Kubernetes. The replace lines are those of
# k8s.io/kubernetes, with released versions of its staging modules.
# Usage: hack/modules/kubernetes.sh v1.28.15 [kubelet]
set -euo pipefail

version="${1:?usage: hack/modules/kubernetes.sh v1.MINOR.PATCH [COMMAND...]}"
minor="${version%.*}"
name="kubernetes-${minor#v}"
folder="$(dirname "${BASH_SOURCE[0]}")/$name"
staging="v0.${version#v1.}"
shift
tools=(kube-apiserver kube-controller-manager kube-scheduler "$@")
tools=("${tools[@]/#/k8s.io/kubernetes/cmd/}")

source="$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')"
# Up to 1.23 this file is not part of the module: hack/modules/openapi.sh makes it.
[ -e "$source/pkg/generated/openapi/zz_generated.openapi.go" ] || tools+=(k8s.io/kube-openapi/cmd/openapi-gen)
replace="$(sed -n -e "s|^\t\([^ ]*\) => ./staging/.*|-replace=\1=\1@$staging|p" -e 's|^\t\([^ ]*\) => \1 \(v[^ ]*\).*|-replace=\1=\1@\2|p' "$source/go.mod")"

mkdir -p "$folder"
cd "$folder"
rm -f go.mod go.sum
cat >go.mod <<END
module github.com/daybreak-gpu/daybreak/hack/modules/$name

go 1.26.0

// Kubernetes ${version#v} for \`make compat\`, written by hack/modules/kubernetes.sh.
END
# shellcheck disable=SC2086 # a word each
go mod edit "-require=k8s.io/kubernetes@$version" "${tools[@]/#/-tool=}" $replace
go mod tidy
