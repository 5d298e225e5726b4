#!/usr/bin/env bash
# rustc for the fuzzer: counts in this project's code where an input leads, by what the stable compiler has for it, and
# leaves everything else as it is. As RUSTC_WORKSPACE_WRAPPER it sees this project's crates alone, so that what cargo
# built of others for the tests is used again; as RUSTC_WRAPPER it sees all, and counts in the parsers, too.
set -euo pipefail

case " $* " in
  *" --crate-name numaplane "* | *" --crate-name fuzz_"* | \
    *" --crate-name serde_saphyr "*" --target "* | *" --crate-name granit_parser "*" --target "* | \
    *" --crate-name serde_json "*" --target "*) # without --target they are for the compiler's own use, in macros
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares ;;
esac
exec "$@"
