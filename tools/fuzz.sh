#!/usr/bin/env bash
# Feeds mutated inputs to what reads what others write, and says which it cannot bear: docs/fuzzing.md.
#
# Usage: tools/fuzz.sh replay          the kept inputs and 60 s of new ones for all targets side by side, in a debug build
#        tools/fuzz.sh run [TARGET…]   new inputs, in an optimised build: for FUZZ_SECONDS (600), or FUZZ_RUNS of each
#                                      target, by FUZZ_JOBS processes (one for each processor)
#        tools/fuzz.sh keep [TARGET…]  takes what `run` found new into fuzz/corpus, as few and as short inputs as will do
#
# Ends with 1 and the command that shows it again when an input makes the code panic, hang, or think for too long.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

all="review duration definitions"
out=$PWD/target/fuzzing
wrapper=$PWD/tools/fuzz-rustc.sh
# Milliseconds of CPU for one piece of work: 50 is what is promised. A debug build has taken 24 at most, on a busy machine.
optimised_ms=50
debug_ms=100

# bytes that an input has at most; what is longer finds nothing new and takes long
longest() {
  case $1 in duration) echo 64 ;; *) echo 16384 ;; esac
}

compiler() {
  command -v "${CXX:-c++}" >/dev/null 2>&1 || {
    echo "fuzz: '${CXX:-c++}' is missing: the fuzzer (libFuzzer) is C++. Install g++ or clang, or set CXX." >&2
    exit 1
  }
}

# build ARGUMENT…: the programs of all targets; prints nothing unless it fails
build() {
  local arguments=("$@") target
  compiler
  for target in "${targets[@]}"; do arguments+=(--example "fuzz-$target"); done
  cargo build --quiet --features fuzz,libfuzzer-sys/link_libfuzzer "${arguments[@]}"
}

build_debug() {
  # Of cargo's own build only this project's crate is made anew; the build without counters stays beside it.
  RUSTC_WORKSPACE_WRAPPER=$wrapper build
  programs=${CARGO_TARGET_DIR:-target}/debug/examples
  limit=$debug_ms
}

build_optimised() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p')
  CARGO_TARGET_DIR=$out RUSTC_WRAPPER=$wrapper build --profile fuzz --target "$host"
  programs=$out/$host/fuzz/examples
  limit=$optimised_ms
}

# fuzz LOG TARGET ARGUMENT…: one process; new inputs go to the first folder among the arguments
fuzz() {
  local log=$1 target=$2
  shift 2
  local dictionary=()
  [ ! -f "fuzz/$target.dict" ] || dictionary=("-dict=fuzz/$target.dict")
  FUZZ_CPU_MS=$limit RUST_BACKTRACE=0 "$programs/fuzz-$target" -max_len="$(longest "$target")" -timeout=60 \
    -print_final_stats=1 "${dictionary[@]}" -artifact_prefix="$out/found/$target-" "$@" >"$log" 2>&1
}

# said LOG…: the figures of a target's processes in one line
said() {
  awk '
    /\tINITED / { sub(/^#/, "", $1); replayed += $1 }
    / cov: / {
      for (i = 1; i < NF; i++) {
        if ($i == "cov:" && $(i + 1) > cov) cov = $(i + 1)
        if ($i == "ft:" && $(i + 1) > features) features = $(i + 1)
      }
    }
    /^stat::number_of_executed_units:/ { executed += $2 }
    /^stat::average_exec_per_sec:/ { speed += $2 }
    /^slowest so far:/ && $4 > slowest { slowest = $4; bytes = $9 }
    END {
      printf "%d inputs replayed, %d new, %d/s, coverage %d (%d features)", \
        replayed, executed - replayed, speed, cov, features
      if (slowest) printf ", slowest %.1f ms (%d bytes)", slowest / 1000, bytes
      print ""
    }' "$@"
}

# failed LOG TARGET: what was found, and how to see it again
failed() {
  local log=$1 target=$2 input
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  {
    echo "fuzz $target: FOUND something"
    grep -A 4 'panicked at\|ERROR: libFuzzer' "$log" | head -n 12 || tail -n 12 "$log"
    if [ -n "$input" ]; then
      echo "the input is $input; to see it again:"
      echo "  FUZZ_CPU_MS=$limit $programs/fuzz-$target $input"
    fi
    echo "the log is $log"
  } >&2
}

# side_by_side NEW JOBS SECONDS RUNS TARGET…: so many processes for each target, all at once; new inputs go to the folder
# NEW; 0 seconds or runs: without end
side_by_side() {
  local new=$1 jobs=$2 seconds=$3 runs=$4 target job pid bad=0 arguments
  local -A log_of=() target_of=()
  shift 4
  rm -rf "$out/logs"
  mkdir -p "$out/found" "$out/logs"
  for target in "$@"; do
    mkdir -p "$new/$target" "fuzz/corpus/$target"
    for ((job = 0; job < jobs; job++)); do
      arguments=(-max_total_time="$seconds" -reload=1)
      [ "$runs" = 0 ] || arguments+=("-runs=$(((runs + jobs - 1) / jobs))")
      fuzz "$out/logs/$target-$job.log" "$target" "${arguments[@]}" \
        "$new/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" &
      log_of[$!]=$out/logs/$target-$job.log target_of[$!]=$target
    done
  done
  for pid in "${!log_of[@]}"; do
    wait "$pid" || { failed "${log_of[$pid]}" "${target_of[$pid]}"; bad=1; }
  done
  for target in "$@"; do
    echo "fuzz $target: $(said "$out/logs/$target-"*.log)"
  done
  return $bad
}

targets_of() {
  local target
  for target in "$@"; do
    [ -f "fuzz/$target.rs" ] || { echo "fuzz: there is no target '$target'; there are: $all" >&2; exit 1; }
  done
  targets=("$@")
  [ $# -gt 0 ] || read -ra targets <<<"$all"
}

# Whatever happens, no process goes on.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

command=${1:-}
[ $# -eq 0 ] || shift
targets_of "$@"
case $command in
  replay)
    build_debug
    rm -rf "$out/replay"
    side_by_side "$out/replay" 1 60 0 "${targets[@]}"
    ;;
  run)
    build_optimised
    seconds=${FUZZ_SECONDS:-600}
    [ -z "${FUZZ_RUNS:-}" ] || seconds=0
    for target in "${targets[@]}"; do
      side_by_side "$out/corpus" "${FUZZ_JOBS:-$(nproc)}" "$seconds" "${FUZZ_RUNS:-0}" "$target"
    done
    ;;
  keep)
    build_optimised
    for target in "${targets[@]}"; do
      rm -rf "$out/merged"
      mkdir -p "$out/merged" "$out/corpus/$target" "$out/logs"
      # Not how often code is reached, which takes five times as many inputs to keep.
      fuzz "$out/logs/keep-$target.log" "$target" -set_cover_merge=1 -use_counters=0 -use_cmp=0 "$out/merged" \
        "fuzz/seeds/$target" "fuzz/corpus/$target" "$out/corpus/$target"
      # The seeds have names and stay where they are.
      for seed in "fuzz/seeds/$target/"*; do rm -f "$out/merged/$(sha1sum <"$seed" | cut -d ' ' -f 1)"; done
      rm -rf "fuzz/corpus/$target"
      mv "$out/merged" "fuzz/corpus/$target"
      echo "fuzz/corpus/$target: $(find "fuzz/corpus/$target" -type f | wc -l) inputs, $(du -sb "fuzz/corpus/$target" | cut -f 1) bytes"
    done
    ;;
  *)
    sed -n '4,9s/^# \{0,1\}//p' "$0" >&2
    exit 1
    ;;
esac
