#!/usr/bin/env bash
# Shows the operator at work on a local control plane, and leaves everything running; `make down` ends it.
#
# Usage: tools/demo.sh                   NUMAPLANE=PROGRAM and STAND_IN=PROGRAM are used instead of building them
#        tools/demo.sh --end-operator    only ends the operator that the last demo left running
#        tools/demo.sh --stand-in        only starts the stand-in for Numaflow, in place of the last one
#        tools/demo.sh --webhook         only starts the webhook, in place of the last one, and registers it by URL
#
# A controller is installed and upgraded to a version that proves itself first; then a version that nobody defined is asked
# for, and is refused before it is stored; then one that cannot start; then a good one again. Then the namespace gets pipelines, which are paused and drained for
# the next upgrade, and one of them for a change of its own. Every line says how many seconds the demo had run when it was
# printed. Lines about rollouts, children, the Deployment, its pods and pipelines come from watches, as things happen.
#
# Simulated pods run no process, so Numaflow's controller is played by tests/stand_in: its leader election, and what it does
# about pipelines and ISB services.
#
# Ends with 1, the reason, the last status and the end of the operator's log when a step does not get where it should.
set -euo pipefail
export LC_ALL=C
[ -z "${NUMAPLANE:-}" ] || NUMAPLANE=$(realpath "$NUMAPLANE")
[ -z "${STAND_IN:-}" ] || STAND_IN=$(realpath "$STAND_IN")
cd "$(dirname "$0")/.."

run=.run
log=$run/logs/operator.log
stand_in_log=$run/logs/stand-in.log
webhook_log=$run/logs/webhook.log
# Shorter than the real 18, 15 and 2 s, with which an old controller leads for half a minute after its pod is gone; and than
# the 10 s between two looks at a pipeline that drains.
timings=(--linger 2s --lease-duration 2s --renew 500ms --tick 1s)
kubectl=(.tools/bin/kubectl --kubeconfig "$run/kubeconfig")
namespace=demo
rollout=numaflow-controller
selector=app=numaflow-controller # the controller's pods
kinds=(pipelines vertices interstepbufferservices monovertices) # of Numaflow
work=$(mktemp -d)
state=$work/rollout # what the watch of the rollout saw last
watchers=()
operator=
webhook=
stand_in=
generation=0

# ---- words ----------------------------------------------------------------------------------------------------------

began=${EPOCHREALTIME/./}

# say TEXT, or say HEAD TEXT: prints it with the time, the text wrapped to the right of the head
say() {
  local tenths=$(((${EPOCHREALTIME/./} - began) / 100000)) head='' line='' text='' word words
  [ $# -eq 1 ] || { head=$1 && shift; }
  printf -v head '%5d.%d  %s' $((tenths / 10)) $((tenths % 10)) "$head"
  read -r -a words <<<"$1"
  for word in ${words[@]+"${words[@]}"}; do
    if [ -n "$line" ] && ((${#head} + ${#line} + ${#word} >= 119)); then
      text+=$head$line$'\n'
      printf -v head '%*s' ${#head} ''
      line=$word
    else
      line+=${line:+ }$word
    fi
  done
  # In one piece: the watches speak at the same time.
  printf '%s%s%s\n' "$text" "$head" "$line"
}

step() { printf '\n' && say "== $1"; }

# tell WHO TEXT: what a watch saw
tell() {
  local head
  printf -v head '%-12s' "$1"
  say "$head" "$2"
}

fail() {
  exec 2>&1
  printf '\n' && say "FAILED: $1"
  # Before this run has started anything, a status and a log are an earlier run's.
  if [ -n "$operator" ]; then
    printf '\n-- last status of the rollout\n'
    "${kubectl[@]}" get ncr "$rollout" --namespace "$namespace" --output yaml --request-timeout 5s |
      sed -n '/^status:/,$p' || true
    printf '\n-- pipelines\n'
    "${kubectl[@]}" get plr,pipelines --namespace "$namespace" --output wide --request-timeout 5s 2>&1 || true
    printf '\n-- end of %s\n' "$log"
    tail -n 20 "$log"
    printf '\n-- end of %s\n' "$webhook_log"
    tail -n 20 "$webhook_log"
    printf '\n' && say "FAILED: $1"
    printf "What was started is left running; 'make down' ends it.\n"
  fi
  exit 1
}

lines() {
  local line
  while IFS= read -r line; do say "$line"; done
}

interrupted() {
  [ -z "$operator" ] || printf "\nInterrupted. What was started is left running; 'make down' ends it.\n" >&2
  exit "$1"
}

# quietly COMMAND…: what it says matters only when it fails
quietly() {
  local words
  words=$("$@" 2>&1) || fail "'$*' failed: $words"
}

finish() {
  local watcher
  for watcher in ${watchers[@]+"${watchers[@]}"}; do
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# ---- watches --------------------------------------------------------------------------------------------------------

# Fields of a record are told apart by $f, records by $r: neither is ever part of a message, as spaces and line breaks
# may be.
f=$'\x1f' r=$'\x1e'

# watch NARRATOR KIND FIELD…: gives what happens to the objects of a kind to a function, field by field
watch() {
  local narrator=$1 kind=$2 template='{.type}' field && shift 2
  for field; do template+="$f{.object$field}"; done
  # The time limit is for the case that this script is killed and cannot end its watches.
  "${kubectl[@]}" get "$kind" --namespace "$namespace" --watch --output-watch-events --request-timeout 10m \
    --output "jsonpath=$template$r" 2>>"$run/logs/demo.log" > >("$narrator") &
  watchers+=($!)
}

narrate_rollout() {
  local last='' asked='' head type name g seen p s promoted result version attempt active cut message
  while IFS=$f read -r -d "$r" type name g seen p s promoted result version attempt active cut message; do
    [ "$name" = "$rollout" ] || continue
    if [ "$type" = DELETED ]; then
      tell rollout gone
      last=''
      continue
    fi
    message=${message//$'\n'/ }
    [ "$p" != Deployed ] || message="version $promoted is promoted"
    [ -n "$p" ] || message='nobody has looked at it yet'
    printf -v head '%-12s%-10s%-10s' rollout "${p:-new}" "${s:--}"
    [ "$head$message" = "$last" ] || say "$head" "$message"
    last=$head$message
    case "$active$cut" in
      "$asked" | '') ;;
      true) tell request "pipelines are asked to pause, for $attempt" ;;
      true*) tell request "the time to drain is up: pipelines are asked to pause as they are" ;;
      false*) [ "${asked#true}" = "$asked" ] || tell request "withdrawn" ;;
    esac
    asked=$active$cut
    # Told first, then known: what the demo says next comes after it.
    { printf "%s$f" "$g" "$seen" "$p" "$s" "$promoted" "$result" "$version" >"$state"; } 2>/dev/null || true
  done
}

narrate_children() {
  local type name version label
  declare -A known=()
  while IFS=$f read -r -d "$r" type name version label; do
    if [ "$type" = DELETED ]; then
      tell child "$name (${version}) gone"
      unset "known[$name]"
    elif [ -z "${known[$name]-}" ]; then
      tell child "$name ($version) is ${label:-without a label}"
      known[$name]=$label
    elif [ "${known[$name]}" != "$label" ]; then
      tell child "$name ($version) was ${known[$name]}, is $label"
      known[$name]=$label
    fi
  done
}

narrate_deployments() {
  local type name g seen image wanted available updated line
  declare -A known=()
  while IFS=$f read -r -d "$r" type name g seen image wanted available updated; do
    case $name in numaflow-controller*) ;; *) continue ;; esac
    if [ "$type" = DELETED ]; then
      tell deployment "$name gone"
      unset "known[$name]"
      continue
    fi
    # Until the new spec was seen, the numbers are about the old one.
    [ "${seen:-0}" = "$g" ] || continue
    line="$name generation $g, $image: ${available:-0} available, ${updated:-0} of $wanted updated"
    [ "$line" = "${known[$name]-}" ] || tell deployment "$line"
    known[$name]=$line
  done
}

narrate_pods() {
  local type name image ready waiting going now
  declare -A known=()
  while IFS=$f read -r -d "$r" type name image ready waiting going; do
    # Those of pipelines and of the ISB service are left out.
    case $name in numaflow-controller*) ;; *) continue ;; esac
    now=${waiting:-starting}
    if [ "$type" = DELETED ]; then
      now=gone
    elif [ -n "$going" ]; then
      now=ending
    elif [ "$ready" = True ]; then
      now=ready
    fi
    if [ "$now" != "${known[$name]-}" ] && [ "$now" != starting ]; then
      tell pod "$name, $image: $now"
    fi
    known[$name]=$now
  done
}

narrate_leases() {
  local type name holder
  declare -A known=()
  while IFS=$f read -r -d "$r" type name holder; do
    case $name in numaflow-controller-lock*) ;; *) continue ;; esac
    if [ "$type" = DELETED ]; then
      tell lease "$name gone"
      unset "known[$name]"
    elif [ -n "$holder" ] && [ "$holder" != "${known[$name]-}" ]; then
      tell lease "$name is held by ${holder%_*}"
      known[$name]=$holder
    fi
  done
}

# now: the time of the demo in tenths of a second
now() { echo $(((${EPOCHREALTIME/./} - began) / 100000)); }

narrate_pipeline_rollouts() {
  local type name g seen phase child pause drained why reason line took
  declare -A known=() since=()
  while IFS=$f read -r -d "$r" type name g seen phase child pause drained why reason; do
    if [ "$type" = DELETED ]; then
      tell pipeline "$name gone"
      unset "known[$name]"
      continue
    fi
    line=$phase$pause
    [ "$line" != "${known[$name]-}" ] && [ "${seen:-0}" = "$g" ] || continue
    took=$(($(now) - ${since[$name]:-$(now)}))
    took=$((took / 10)).$((took % 10))
    case $pause in
      Pausing)
        since[$name]=$(now)
        tell pipeline "$child pauses: $reason"
        ;;
      Paused)
        [ "$drained" = true ] && why=yes || why="no, $why"
        tell pipeline "$child is paused after $took s; drained: $why"
        ;;
      Resuming) tell pipeline "$child is to run again" ;;
      *)
        case ${known[$name]-} in
          *Resuming) tell pipeline "$child runs again, $took s after it was asked to pause" ;;
          *) [ -z "$phase" ] || tell pipeline "${child:-$name} is $phase" ;;
        esac
        ;;
    esac
    known[$name]=$line
  done
}

# What Numaflow makes of it: here, its stand-in.
narrate_pipelines() {
  local type name wanted phase image line
  declare -A known=()
  while IFS=$f read -r -d "$r" type name wanted phase image; do
    line="Pipeline/$name: told ${wanted:-to run}, says ${phase:-nothing yet}${image:+, image $image}"
    [ "$type" != DELETED ] || line="Pipeline/$name gone"
    [ "$line" = "${known[$name]-}" ] || tell stand-in "$line"
    known[$name]=$line
  done
}

narrate_isb_rollouts() {
  local type name phase stage active message line
  declare -A known=() asked=()
  while IFS=$f read -r -d "$r" type name phase stage active message; do
    if [ "$type" = DELETED ]; then
      tell isb-service "$name gone"
      unset "known[$name]"
      continue
    fi
    line="$name ${phase:-new} ${stage:--}: ${message//$'\n'/ }"
    [ "$line" = "${known[$name]-}" ] || tell isb-service "$line"
    known[$name]=$line
  done
}

# The StatefulSets of ISB services.
narrate_stateful_sets() {
  local type name g seen image wanted updated ready line
  declare -A known=()
  while IFS=$f read -r -d "$r" type name g seen image wanted updated ready; do
    if [ "$type" = DELETED ]; then
      tell brokers "$name gone"
      continue
    fi
    [ "${seen:-0}" = "$g" ] || continue
    line="$name, $image: ${updated:-0} of $wanted updated, ${ready:-0} ready"
    [ "$line" = "${known[$name]-}" ] || tell brokers "$line"
    known[$name]=$line
  done
}

# refused COMMAND…: what the API server refuses, word for word
refused() {
  local words
  ! words=$("$@" 2>&1) || fail "'$*' was not refused: $words"
  case $words in *"is invalid"* | *"denied the request"*) ;; *) fail "'$*' was not refused but failed: $words" ;; esac
  while IFS= read -r line; do tell kubectl "$line"; done <<<"$words"
}

# ---- the rollout ----------------------------------------------------------------------------------------------------

# change PATCH: changes the rollout
change() {
  generation=$("${kubectl[@]}" patch ncr "$rollout" --namespace "$namespace" --type merge \
    --patch "$1" --output 'jsonpath={.metadata.generation}' 2>&1) ||
    fail "the rollout cannot be changed: $generation"
}

set_version() { change "{\"spec\":{\"controller\":{\"version\":\"$1\"}}}"; }

# show WHAT KIND NAME FIELD: prints the fields of a part of a status
show() {
  local line template="{{range \$k, \$v := .status.$4}}{{if \$v}}{{printf \"%-16s\" \$k}}{{\$v}}{{\"\\n\"}}{{end}}{{end}}"
  say "$1 (status.$4 of $2/$3):"
  "${kubectl[@]}" get "$2" "$3" --namespace "$namespace" --output "go-template=$template" |
    while IFS= read -r line; do say "    ${line:0:16}" "${line:16}"; done || fail "the status cannot be read"
}

# await SECONDS WORDS PREDICATE…: waits until the rollout is as it should be
await() {
  local limit=$1 words=$2 end=$((SECONDS + $1)) && shift 2
  local g=0 seen=0 phase='' stage='' promoted='' result='' version=''
  while true; do
    if [ -s "$state" ]; then
      IFS=$f read -r g seen phase stage promoted result version _ <"$state" || true
      if ((${seen:-0} >= generation)); then
        ! "$@" || return 0
        # Judged is judged: nothing more comes of it.
        ! failed "$2" || fail "$words: it failed"
      fi
    fi
    kill -0 "$operator" 2>/dev/null || fail "the operator ended"
    kill -0 "$webhook" 2>/dev/null || fail "the webhook ended, see $webhook_log"
    kill -0 "$stand_in" 2>/dev/null || fail "the stand-in for Numaflow ended, see $stand_in_log"
    ((SECONDS < end)) || fail "$words: not within $limit s"
    sleep 0.1
  done
}

deployed() { [[ $phase == Deployed && $promoted == "$1" && -z $stage ]]; }

failed() { [[ $phase == Failed && $version == "$1" && $result == Failed && -z $stage ]]; }

generation_of_deployment() {
  "${kubectl[@]}" get deployment numaflow-controller --namespace "$namespace" --output 'jsonpath={.metadata.generation}'
}

# names of the controller's pods, those that are ending left out
pods() {
  local template='{{range .items}}{{if not .metadata.deletionTimestamp}} {{.metadata.name}}{{end}}{{end}}'
  "${kubectl[@]}" get pods --namespace "$namespace" --selector "$selector" --output "go-template=$template"
}

# waits until all pipelines run, as they are asked for
pipelines_run() { quietly "${kubectl[@]}" wait plr --all --for condition=Ready --timeout 30s --namespace "$namespace"; }

# The watches tell what they saw a moment later than it was so; a step is not over before they did.
settle() { sleep 0.4; }

# ---- processes ------------------------------------------------------------------------------------------------------

# recorded NAME: the process that an earlier demo recorded, as "pid start boot": an id alone may be another's by now
recorded() {
  [ -e "$run/pids" ] || return 0
  sed -n 's/^ *"\(name\|pid\|start\|boot\)": "\{0,1\}\([^",]*\).*/\1 \2/p' "$run/pids" |
    while read -r key value; do
      case $key in
        name) name=$value ;;
        pid) pid=$value ;;
        start) start=$value ;;
        boot) [ "$name" != "$1" ] || echo "$pid $start $value" ;;
      esac
    done | tail -n 1
}

# runs PID START BOOT: whether exactly this process runs
runs() {
  local stat fields
  [ "$(cat /proc/sys/kernel/random/boot_id)" = "$3" ] || return 1
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -r -a fields <<<"${stat##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[19]}" = "$2" ]
}

# end_last NAME WORDS: ends the process that was recorded last under this name
end_last() {
  local last
  read -r -a last <<<"$(recorded "$1")"
  [ ${#last[@]} -eq 3 ] && runs "${last[@]}" || return 0
  say "ending $2 of the last demo"
  kill "${last[0]}"
  for _ in {1..100}; do
    runs "${last[@]}" || break
    sleep 0.1
  done
  ! runs "${last[@]}" || kill -KILL "${last[0]}"
}

end_last_operator() {
  local pid
  end_last operator "the operator"
  # Two operators would undo each other's work.
  for pid in $(grep -lsz "^KUBECONFIG=$PWD/$run/kubeconfig-operator\$" /proc/[0-9]*/environ | sed 's/[^0-9]//g'); do
    [[ $(readlink "/proc/$pid/exe") != */numaplane* ]] ||
      fail "an operator still runs for this folder: process $pid, perhaps of 'make run'; end it first (Ctrl-C)"
  done
}

start_stand_in() {
  KUBECONFIG=$PWD/$run/kubeconfig setsid "$stand_in_program" --install-kinds "${timings[@]}" \
    </dev/null >"$stand_in_log" 2>&1 &
  stand_in=$!
  quietly .tools/bin/control-plane record --dir "$run" --name stand-in --pid "$stand_in"
  for _ in {1..50}; do
    [ ! -s "$stand_in_log" ] || break
    sleep 0.1
  done
  kill -0 "$stand_in" 2>/dev/null || fail "the stand-in for Numaflow ended at once: $(tail -n 1 "$stand_in_log")"
  local crds=("${kinds[@]/#/crd/}") words="a stand-in for Numaflow's controller, because simulated pods run no process"
  crds=("${crds[@]/%/.numaflow.numaproj.io}")
  quietly "${kubectl[@]}" wait --for create --timeout 20s "${crds[@]}"
  quietly "${kubectl[@]}" wait --for condition=Established --timeout 20s "${crds[@]}"
  say "$words: it elects leaders in their names, and pauses and resumes pipelines (${timings[*]}); log: $stand_in_log"
}

# free_port FIRST: a port of the hundred from there on that nobody listens on
free_port() {
  local port
  for ((port = $1; port < $1 + 100; port++)); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  return 1
}

# whether who serves /readyz on this port says that it is ready
ready() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
    read -r -t 2 answer <&3
    [[ $answer == *' 200 '* ]]
  ) 2>/dev/null
}

start_operator() {
  local port
  port=$(free_port 8081) || fail "no port from 8081 to 8180 is free for the operator's /healthz, /readyz and /metrics"
  KUBECONFIG=$PWD/$run/kubeconfig-operator setsid "$program" controller --namespace numaplane-system \
    --admin-address "127.0.0.1:$port" </dev/null >"$log" 2>&1 &
  operator=$!
  quietly .tools/bin/control-plane record --dir "$run" --name operator --pid "$operator"
  for _ in {1..300}; do
    ! ready "$port" || break
    kill -0 "$operator" 2>/dev/null || fail "the operator ended at once"
    sleep 0.1
  done
  ready "$port" || fail "the operator is not ready within 30 s"
  say "operator: at work; log: $log, metrics: http://127.0.0.1:$port/metrics"
}

# Registered by URL, because it runs here and not in the cluster. It makes its certificates itself, and says in the
# configuration by which CA the API server knows them.
start_webhook() {
  local port admin configuration=$run/webhooks/validating.yaml
  port=$(free_port 9443) || fail "no port from 9443 to 9542 is free for the webhook"
  admin=$(free_port 8181) || fail "no port from 8181 to 8280 is free for the webhook's /healthz, /readyz and /metrics"
  quietly "$program" manifests --webhook-url "https://127.0.0.1:$port" --out "$run"
  KUBECONFIG=$PWD/$run/kubeconfig-operator setsid "$program" webhook --namespace numaplane-system \
    --address "127.0.0.1:$port" --admin-address "127.0.0.1:$admin" --dns-name 127.0.0.1 --drain 200ms \
    </dev/null >"$webhook_log" 2>&1 &
  webhook=$!
  quietly .tools/bin/control-plane record --dir "$run" --name webhook --pid "$webhook"
  for _ in {1..300}; do
    ! ready "$admin" || break
    kill -0 "$webhook" 2>/dev/null || fail "the webhook ended at once: $(tail -n 1 "$webhook_log")"
    sleep 0.1
  done
  ready "$admin" || fail "the webhook is not ready within 30 s, see $webhook_log"
  quietly "${kubectl[@]}" apply --server-side --force-conflicts --filename "$configuration"
  # Until it is, the API server cannot tell the webhook from anybody else.
  quietly "${kubectl[@]}" wait validatingwebhookconfiguration/numaplane --timeout 30s \
    --for 'jsonpath={.webhooks[0].clientConfig.caBundle}'
  say "webhook: at https://127.0.0.1:$port, registered by $configuration; log: $webhook_log"
}

# ---- what earlier demos left -----------------------------------------------------------------------------------------

have_namespace() {
  local phase
  phase=$("${kubectl[@]}" get namespace "$1" --ignore-not-found --output 'jsonpath={.status.phase}') ||
    fail "namespace $1 cannot be read"
  if [ "$phase" = Terminating ]; then
    say "namespace $1 is being deleted; waiting until it is gone"
    quietly "${kubectl[@]}" wait --for delete --timeout 60s "namespace/$1"
    phase=
  fi
  [ -n "$phase" ] || quietly "${kubectl[@]}" create namespace "$1"
}

# What rollouts were in the middle of when a demo was cut off does not matter: deleting them always works. Pipelines go
# first, because a controller stays while they need it.
remove_last_rollouts() {
  local left
  left=$("${kubectl[@]}" get plr,mvr,isbr,pipelines,isbsvc,ncr --namespace "$namespace" --ignore-not-found --output name) ||
    fail "the rollouts of the last demo cannot be read"
  [ -n "$left" ] || return 0
  say "removing the rollouts of the last demo, and with them all that they made"
  local all=(--namespace "$namespace" --ignore-not-found --timeout 60s)
  quietly "${kubectl[@]}" delete plr,mvr --all "${all[@]}"
  quietly "${kubectl[@]}" delete pipelines --all "${all[@]}"
  quietly "${kubectl[@]}" delete isbr --all "${all[@]}"
  quietly "${kubectl[@]}" delete isbsvc --all "${all[@]}"
  quietly "${kubectl[@]}" delete ncr "$rollout" "${all[@]}"
  quietly "${kubectl[@]}" wait pod --for delete --timeout 30s --namespace "$namespace" --selector "$selector"
}

# build TARGET…: has cargo build what is to be run
build() {
  tools/check-cargo.sh
  cargo build "$@"
}

stand_in_program=${STAND_IN:-${CARGO_TARGET_DIR:-target}/debug/examples/numaflow-stand-in}
case ${1:-} in
  --end-operator)
    end_last_operator
    exit
    ;;
  --stand-in)
    [ -n "${STAND_IN:-}" ] || build --example numaflow-stand-in
    end_last stand-in "the stand-in for Numaflow"
    start_stand_in
    exit
    ;;
  --webhook)
    program=${NUMAPLANE:-${CARGO_TARGET_DIR:-target}/debug/numaplane}
    [ -n "${NUMAPLANE:-}" ] || build --bin numaplane
    end_last webhook "the webhook"
    start_webhook
    exit
    ;;
esac

# ---- what is needed -------------------------------------------------------------------------------------------------

# Both at once: cargo would compile what they are made of twice, because an example may use more features of it.
targets=()
[ -n "${NUMAPLANE:-}" ] || targets+=(--bin numaplane)
[ -n "${STAND_IN:-}" ] || targets+=(--example numaflow-stand-in)
[ ${#targets[@]} -eq 0 ] || build "${targets[@]}"
program=${NUMAPLANE:-${CARGO_TARGET_DIR:-target}/debug/numaplane}
[ -x .tools/bin/control-plane ] && [ -x .tools/bin/kubectl ] || tools/build.sh

# ---- the demo -------------------------------------------------------------------------------------------------------

began=${EPOCHREALTIME/./}
step "A control plane with one simulated node, definitions of three versions, the operator and its webhook"
end_last_operator
end_last webhook "the webhook"
end_last stand-in "the stand-in for Numaflow"
.tools/bin/control-plane up --dir "$run" --quiet 2>&1 | lines || fail "the control plane did not start"
quietly "${kubectl[@]}" apply --server-side --force-conflicts --filename crds/
quietly "${kubectl[@]}" wait --for condition=Established --timeout 20s --filename crds/
: >"$run/logs/demo.log"
have_namespace numaplane-system
quietly "${kubectl[@]}" apply --server-side --force-conflicts --filename examples/definitions.yaml
say "definitions: 1.8.0, 1.9.0 and 2.0.0-broken, from examples/definitions.yaml"
start_stand_in
start_operator
start_webhook
have_namespace "$namespace"
remove_last_rollouts
watch narrate_rollout numaflowcontrollerrollouts .metadata.name .metadata.generation .status.observedGeneration \
  .status.phase .status.upgrade.stage .status.promoted.version .status.lastAttempt.result .status.lastAttempt.version \
  .status.pauseRequest.attempt .status.pauseRequest.active .status.pauseRequest.cutAt .status.message
watch narrate_children numaflowcontrollers .metadata.name .spec.version \
  '.metadata.labels.numaplane\.numaproj\.io/upgrade-state'
watch narrate_deployments deployments .metadata.name .metadata.generation .status.observedGeneration \
  '.spec.template.spec.containers[0].image' .spec.replicas .status.availableReplicas .status.updatedReplicas
watch narrate_pods pods .metadata.name '.spec.containers[0].image' '.status.conditions[?(@.type=="Ready")].status' \
  '.status.containerStatuses[0].state.waiting.reason' .metadata.deletionTimestamp
watch narrate_leases leases .metadata.name .spec.holderIdentity
watch narrate_pipeline_rollouts pipelinerollouts .metadata.name .metadata.generation .status.observedGeneration \
  .status.phase .status.child .status.pause.state .status.pause.drained .status.pause.notDrained .status.pause.reason
watch narrate_isb_rollouts isbservicerollouts .metadata.name .status.phase .status.change.stage .status.pauseRequest.active \
  .status.message
watch narrate_stateful_sets statefulsets .metadata.name .metadata.generation .status.observedGeneration \
  '.spec.template.spec.containers[0].image' .spec.replicas .status.updatedReplicas .status.readyReplicas
watch narrate_pipelines pipelines.numaflow.numaproj.io .metadata.name .spec.lifecycle.desiredPhase .status.phase \
  '.spec.vertices[?(@.udf)].udf.container.image'

step "Install: a rollout asks for 1.8.0 (examples/rollout.yaml)"
quietly "${kubectl[@]}" apply --server-side --filename examples/rollout.yaml
generation=1
await 60 "1.8.0 is not deployed" deployed 1.8.0
settle

step "Upgrade to 1.9.0: it proves itself in a copy beside the running one (names with -x-), then takes over"
set_version 1.9.0
await 60 "1.9.0 is not deployed" deployed 1.9.0
settle

step "What cannot work is refused before it is stored: a version that is not defined, and a pipeline with mistakes"
refused "${kubectl[@]}" patch ncr "$rollout" --namespace "$namespace" --type merge \
  --patch '{"spec":{"controller":{"version":"1.9.1"}}}'
refused "${kubectl[@]}" create --filename examples/pipeline-with-mistakes.yaml
generation_before=$(generation_of_deployment) && pods_before=$(pods) || fail "the Deployment cannot be read"
before="Deployment at generation $generation_before, pod$pods_before"

step "A version that cannot start: 2.0.0-broken has 15 s to prove itself, beside the running one"
set_version 2.0.0-broken
await 90 "2.0.0-broken is not given up" failed 2.0.0-broken
settle
generation_after=$(generation_of_deployment) && pods_after=$(pods) || fail "the Deployment cannot be read"
after="Deployment at generation $generation_after, pod$pods_after"
[ "$before" = "$after" ] || fail "a version that cannot start changed what runs: before, $before; now, $after"
say "what runs was not touched: still $after"
show "what is kept of the attempt" ncr "$rollout" lastAttempt

step "A good version again: 1.8.0"
set_version 1.8.0
await 60 "1.8.0 is not deployed" deployed 1.8.0
settle

step "Pipelines: an ISBServiceRollout and three PipelineRollouts (examples/isbsvc.yaml, pipeline.yaml, pipelines-of-the-demo.yaml)"
say "no message flows here: the stand-in for Numaflow has 'payments' take 2 s to drain, and 'returns' never drain"
quietly "${kubectl[@]}" apply --server-side --filename examples/isbsvc.yaml
quietly "${kubectl[@]}" wait isbr/default --namespace "$namespace" --for condition=Ready --timeout 30s
quietly "${kubectl[@]}" apply --server-side --filename examples/pipeline.yaml --filename examples/pipelines-of-the-demo.yaml
pipelines_run
settle

step "Upgrade to 1.9.0 with pause-and-drain: once it has proved itself, pipelines have 6 s to drain, and then it goes on"
change '{"spec": {"controller": {"version": "1.9.0"}, "strategy": {"type": "pause-and-drain",
  "ppnd": {"drainTimeout": "6s", "onDrainTimeout": "Proceed"}}}}'
await 90 "1.9.0 is not deployed" deployed 1.9.0
pipelines_run
settle
show "what is kept of the drain" ncr "$rollout" lastDrain

step "A change of a pipeline itself: 'orders' gets another function, so it drains first; the others run on"
set_image() {
  local path=/spec/pipeline/spec/vertices/1/udf/container/image
  quietly "${kubectl[@]}" patch plr "$1" --namespace "$namespace" --type json \
    --patch "[{\"op\": \"replace\", \"path\": \"$path\", \"value\": \"$2\"}]"
}
set_image orders sample/price:2
pipelines_run
settle
show "what is kept of the pause" plr orders lastPause

step "Another version of the ISB service: its pipelines drain first, and run when all of its brokers run it"
quietly "${kubectl[@]}" patch isbr default --namespace "$namespace" --type merge \
  --patch '{"spec": {"interStepBufferService": {"spec": {"jetstream": {"version": "2.12"}}}}}'
quietly "${kubectl[@]}" wait isbr/default --namespace "$namespace" --for 'jsonpath={.status.upgradeInProgress}=PipelinePauseAndDrain' \
  --timeout 30s
quietly "${kubectl[@]}" wait isbr/default --namespace "$namespace" --for condition=Ready --timeout 60s
pipelines_run
settle
show "what is kept of the drain" isbr default lastDrain

step "Done. Everything is left running; 'make down' ends it. Look around:"
command="KUBECONFIG=$run/kubeconfig .tools/bin/kubectl --namespace $namespace"
cat <<END

$command get numaplane,pipelines,isbsvc,pods
$command describe isbr default
$command describe ncr $rollout
$command describe plr returns
$command get deploy,cm,sa,role,rolebinding -l numaplane.numaproj.io/tracking-id
END
