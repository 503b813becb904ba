#!/usr/bin/env bash
# Installs the Debian packages that the node of the end-to-end tests takes
# besides what is built from source. Does nothing where they are there.
set -euo pipefail

missing=()
need() {
  command -v "$1" >/dev/null || [[ -x "$1" ]] || missing+=("$2")
}
PATH="$PATH:/usr/sbin:/sbin"
need runc runc
need /usr/lib/cni/bridge containernetworking-plugins
need busybox busybox-static
need ip iproute2
need iptables iptables
need conntrack conntrack
need "${CC:-cc}" gcc
[[ -e /usr/include/stdio.h ]] || missing+=(libc6-dev)

if ((${#missing[@]} == 0)); then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "make e2e: install what these Debian packages have: ${missing[*]}" >&2
  exit 1
fi
echo "make e2e: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null; }
# The lists may be too old, or not there at all.
install || { apt-get update -qq && install; }
