#!/usr/bin/env bash
# Installs what `make test` needs beyond a Rust toolchain, if it is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for component in fmt clippy; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        echo "cargo $component is missing; 'rustup component add rustfmt clippy' installs it" >&2
        exit 1
    fi
done

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest --version | head -n 1
else
    echo "cargo-nextest is missing, installing it (once; takes a few minutes)"
    cargo install cargo-nextest --locked
fi

# Asks dpkg's scripts not to start services, as policy-rc.d is made for, and takes the question back
# afterwards. The tests start servers of their own, on ports of their own; one that nobody asked for
# must not sit on the default port. Runs as root.
INSTALL_REDIS='
    set -eu
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap "rm -f $policy" EXIT
        trap "exit 1" HUP INT TERM
        printf "#!/bin/sh\nexit 101\n" >"$policy"
        chmod 755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends redis-server redis-tools openssl
    # Nor at the next boot.
    if [ -d /run/systemd/system ]; then
        systemctl disable --quiet redis-server.service
    fi
'

has_redis() {
    # openssl makes the certificates of servers with TLS.
    command -v redis-server >/dev/null && command -v redis-cli >/dev/null &&
        command -v openssl >/dev/null
}

if ! has_redis; then
    echo "redis-server, redis-cli or openssl is missing, installing redis-server, redis-tools and openssl"
    if ! command -v apt-get >/dev/null; then
        echo "there is no apt-get; install redis-server and redis-cli (7.0 or later) and openssl by hand" >&2
        exit 1
    elif ((EUID == 0)); then
        sh -c "$INSTALL_REDIS" || true
    elif command -v sudo >/dev/null; then
        sudo sh -c "$INSTALL_REDIS" || true
    else
        echo "this needs root; as root: apt-get install redis-server redis-tools openssl" >&2
        exit 1
    fi
    if ! has_redis; then
        echo "redis-server, redis-cli and openssl are still not all in PATH; see the messages above" >&2
        exit 1
    fi
fi
# libFuzzer, which the fuzz targets are linked with, is built from C++; everything else needs C alone.
INSTALL_CXX='
    set -eu
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends g++
'
if ! command -v c++ >/dev/null; then
    echo "c++ is missing, installing g++"
    if command -v apt-get >/dev/null && ((EUID == 0)); then
        sh -c "$INSTALL_CXX" || true
    elif command -v apt-get >/dev/null && command -v sudo >/dev/null; then
        sudo sh -c "$INSTALL_CXX" || true
    fi
    if ! command -v c++ >/dev/null; then
        echo "a compiler for C++ is needed; as root: apt-get install g++" >&2
        exit 1
    fi
fi

# Sentinels need no program of their own: redis-server --sentinel.
redis-server --version | cut -d ' ' -f 1-3

# Other implementations that the service is tested with; they get an environment of their own.
PYTHON_ENV="$TARGET_DIR/python"
PYTHON_PACKAGES="pymacaroons==0.13.0 schemathesis==4.32.5
    grpcio==1.85.1 grpcio-reflection==1.85.1 grpcio-status==1.85.1 protobuf==7.36.2"
has_packages() {
    "$PYTHON_ENV/bin/python" - $PYTHON_PACKAGES 2>/dev/null <<'PYTHON'
import importlib.metadata, sys
for wanted in sys.argv[1:]:
    name, version = wanted.split("==")
    if importlib.metadata.version(name) != version:
        sys.exit(1)
PYTHON
}
# Debian has the part of venv that installs pip in a package of its own.
has_venv() {
    python3 -c 'import venv, ensurepip' 2>/dev/null
}
INSTALL_PYTHON='
    set -eu
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends python3 python3-venv
'
if ! has_packages; then
    if ! has_venv && command -v apt-get >/dev/null; then
        echo "python3 or its module venv is missing, installing python3 and python3-venv"
        if ((EUID == 0)); then
            sh -c "$INSTALL_PYTHON" || true
        elif command -v sudo >/dev/null; then
            sudo sh -c "$INSTALL_PYTHON" || true
        fi
    fi
    if ! has_venv; then
        echo "python3 with its module venv is needed; as root: apt-get install python3-venv" >&2
        exit 1
    fi
    echo "installing" $PYTHON_PACKAGES "into $PYTHON_ENV"
    python3 -m venv "$PYTHON_ENV"
    # Not with its program pip, which knows where the environment was made, not where it is.
    "$PYTHON_ENV/bin/python" -m pip install --quiet --disable-pip-version-check $PYTHON_PACKAGES
    has_packages || { echo "Python packages are still missing; see above" >&2; exit 1; }
fi
