#!/usr/bin/env bash
# Builds the pinned control plane and command-line tools into .tools/bin, once.
#
# Usage: tools/build.sh [TOOL…]     without arguments: every tool below
#
# A tool is rebuilt when its go.mod, its go.sum, the flags it is built with or the Go version changes; control-plane, the
# project's own, also when its sources change. Binaries found in KUBEBUILDER_ASSETS are used instead of building them.
# Progress goes to standard output; the log of a failed build is shown and kept.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
bin="$top/.tools/bin"
share="$top/.tools/share"
stamps="$top/.tools/stamps"
logs="$top/.tools/logs"
need_go=1.26
kube_version=v1.36.3
all="etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok control-plane"
# -buildid= keeps the binaries the same from one checkout to the next
ldflags="-s -w -buildid= -X k8s.io/component-base/version.gitVersion=$kube_version"
ldflags="$ldflags -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

# tool → "module folder, package"
package_of() {
  case $1 in
    etcd) echo "etcd go.etcd.io/etcd/server/v3" ;;
    kube-apiserver | kube-controller-manager | kube-scheduler | kubectl) echo "kubernetes k8s.io/kubernetes/cmd/$1" ;;
    kwok) echo "kwok sigs.k8s.io/kwok/cmd/kwok" ;;
    control-plane) echo "controlplane ." ;;
    *) echo "tools/build.sh: no tool is called '$1'; there are: $all" >&2; return 1 ;;
  esac
}

# seconds a cold build takes on two cores, for the progress lines
expected() {
  case $1 in
    etcd) echo 55 ;; kube-apiserver) echo 260 ;; kube-controller-manager) echo 60 ;;
    kube-scheduler) echo 10 ;; kubectl) echo 25 ;; kwok) echo 140 ;; control-plane) echo 15 ;; *) echo 60 ;;
  esac
}

check_go() {
  if ! command -v go >/dev/null 2>&1; then
    echo "tools/build.sh: Go is missing. Install Go $need_go or later (https://go.dev/dl) and put it on PATH." >&2
    exit 1
  fi
  local have
  have=$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
  if [ "$(printf '%s\n%s\n' "$need_go" "$have" | sort -V | head -n 1)" != "$need_go" ]; then
    echo "tools/build.sh: Go $have is too old; the pinned Kubernetes needs Go $need_go or later (found $(command -v go))." >&2
    exit 1
  fi
}

# what a tool is built from; a change of this text is what makes a rebuild
sources_of() {
  local folder="$top/tools/$1"
  cat "$folder/go.mod"
  [ ! -e "$folder/go.sum" ] || cat "$folder/go.sum"
  [ "$1" != controlplane ] || cat "$folder"/*.go "$folder"/*.tmpl
  echo "$ldflags"
  GOTOOLCHAIN=local go env GOVERSION
}

build() {
  local tool=$1 folder package stamp key pid started log
  read -r folder package <<<"$(package_of "$tool")"
  # ours is never taken from elsewhere: it would not be the one these sources describe
  if [ "$tool" != control-plane ] && [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$tool" ]; then
    ln -sfn "$KUBEBUILDER_ASSETS/$tool" "$bin/$tool"
    rm -f "$stamps/$tool"
    echo "$position $tool: taken from KUBEBUILDER_ASSETS"
    return
  fi
  check_go
  stamp="$stamps/$tool"
  key=$(sources_of "$folder" | sha256sum | cut -c1-64)
  if [ -x "$bin/$tool" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    return
  fi
  log="$logs/$tool.log"
  started=$SECONDS
  echo "$position $tool: building (about $(expected "$tool") s when nothing is cached)"
  (cd "$top/tools/$folder" && exec env CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=readonly \
    go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$bin/$tool.new" "$package") >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      sleep 1
      kill -0 "$pid" 2>/dev/null || break
    done
    ! kill -0 "$pid" 2>/dev/null || echo "$position $tool: still building, $((SECONDS - started)) s"
  done
  if ! wait "$pid"; then
    echo "$position $tool: the build failed; the end of ${log#"$top"/}:" >&2
    tail -n 20 "$log" >&2
    exit 1
  fi
  mv "$bin/$tool.new" "$bin/$tool"
  echo "$key" >"$stamp"
  echo "$position $tool: built in $((SECONDS - started)) s"
}

mkdir -p "$bin" "$share" "$stamps" "$logs"
# One build at a time in one checkout; a second `make` waits for the first.
exec 9>"$top/.tools/lock"
flock --nonblock 9 || { echo "tools: waiting for another build in this checkout"; flock 9; }
wanted=${*:-$all}
total=$(echo "$wanted" | wc -w)
n=0
for tool in $wanted; do
  n=$((n + 1))
  position="tools $n/$total"
  build "$tool"
done
