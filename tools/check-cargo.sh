#!/usr/bin/env bash
# Says what is missing when the project cannot be built here for want of Rust; says nothing when it can.
set -euo pipefail
cd "$(dirname "$0")/.."

need=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
install="Install Rust with rustup (https://rustup.rs); it takes the version from rust-toolchain.toml by itself."

if ! command -v cargo >/dev/null 2>&1; then
  echo "cargo is missing; Rust $need or later is needed. $install" >&2
  [ ! -x "$HOME/.cargo/bin/cargo" ] || echo "There is one in ~/.cargo/bin, which is not on PATH." >&2
  exit 1
fi
# With rustup, this installs the pinned version when it is not there yet, and tells so itself.
version=$(cargo --version) || { echo "'cargo --version' fails; Rust $need or later is needed. $install" >&2; exit 1; }
have=$(sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p' <<<"$version")
if [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
  echo "Rust $have is too old; $need or later is needed (found $(command -v cargo)). $install" >&2
  exit 1
fi
