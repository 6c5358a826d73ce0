#!/usr/bin/env bash
# Install three MCP servers of other people, for trying Punctual with them and for its tests.
# What they are: README.md beside this script.
set -euo pipefail

readonly node_packages=(
    @modelcontextprotocol/server-everything@2026.8.31
    @modelcontextprotocol/server-filesystem@2026.8.31
)
readonly python_packages=(mcp-server-time==2026.10.19)
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
readonly here
folder=$here/installed

die() {
    echo "prepare.sh: $*" >&2
    exit 1
}

case ${1-} in
    '') ;;
    --into) folder=${2:?"--into needs a folder"} ;;
    *)
        echo "usage: prepare.sh [--into DIR]   (default: installed, beside this script)" >&2
        exit 2
        ;;
esac

# Tests may call this script at the same time.
mkdir -p -- "$folder"
exec 9>"$folder/.lock"
if command -v flock >/dev/null; then
    flock --timeout 600 9 || die "another installation into $folder has not ended for 10 minutes"
fi

# What is there is what is wanted, and nothing has to be done.
wanted="${node_packages[*]} ${python_packages[*]}"
[[ -f $folder/.complete && $(<"$folder/.complete") == "$wanted" ]] && exit 0

command -v npm >/dev/null || die "npm is missing (Debian, Ubuntu: apt-get install nodejs npm)"
node -e 'process.exit(+(process.versions.node.split(".")[0] < 18))' ||
    die "node is $(node --version), 18 or newer is needed"
python3 -c 'import venv, ensurepip' 2>/dev/null ||
    die "python3 has no venv module (Debian, Ubuntu: apt-get install python3-venv)"

rm -f -- "$folder/.complete"
echo "prepare.sh: installing $wanted into $folder" >&2
npm install --prefix "$folder" --no-save --no-audit --no-fund --ignore-scripts --loglevel error \
    "${node_packages[@]}" >&2 || die "npm could not install ${node_packages[*]}"
python3 -m venv "$folder/venv" >&2 || die "cannot make a Python venv in $folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    "${python_packages[@]}" >&2 || die "pip could not install ${python_packages[*]}"
printf '%s' "$wanted" >"$folder/.complete"
