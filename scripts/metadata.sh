#!/usr/bin/env bash
# Prints the features, or the targets of a kind, of one workspace package, one name a line.
#
#   scripts/metadata.sh features mailbox
#   scripts/metadata.sh example mailbox
#
# Reads the JSON of `cargo metadata` with bash and sed, because a clean machine has nothing better.
# It relies on two things that cargo keeps stable: a package (unlike a dependency) starts with its
# name followed by its version, and neither features nor target names contain brackets.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

what="$1"
package="$2"
json="$(cargo metadata $LOCKED --format-version 1 --no-deps)"

start="{\"name\":\"$package\",\"version\":"
if [[ "$json" != *"$start"* ]]; then
    echo "cargo metadata shows no package $package" >&2
    exit 1
fi
json="${json#*"$start"}"

case "$what" in
features)
    json="${json#*\"features\":\{}"
    json="${json%%\}*}"
    # What is left is "a":["b","c"],"d":[]; without the lists only the names stay.
    printf '%s\n' "$json" | sed 's/\[[^]]*\]//g' | tr ',' '\n' | sed -n 's/^"\(.*\)":$/\1/p'
    ;;
*)
    # The targets come before the features, so the package ends there for this purpose.
    json="${json%%\"features\":\{*}"
    printf '%s\n' "$json" | tr '{' '\n' |
        sed -n "s/^\"kind\":\[\"$what\"\].*\"name\":\"\([^\"]*\)\".*/\1/p"
    ;;
esac
