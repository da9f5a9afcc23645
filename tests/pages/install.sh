#!/bin/sh
# Installs what tests/pages need into the folder $1, beside the environment $2: Playwright, which drives
# the browser, and axe-core, which looks for barriers. The browser is the system's: on Debian,
# `apt-get install chromium`. Needs npm. Everything after it works offline.
set -eu
here=$(dirname "$0")
to=$1
project=$2

command -v chromium > /dev/null || { echo "chromium is missing: apt-get install chromium" >&2; exit 1; }
test -x "$to/bin/python" || "$project/bin/python" -m venv "$to"
echo '*' > "$to/.gitignore"
# All other packages are the project's, and a server that a test starts imports the project itself.
paths='import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")'
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
{
    "$project/bin/python" -c "$paths"
    (cd "$here/../.." && pwd)
} > "$("$to/bin/python" -c "$purelib")/project.pth"
"$to/bin/python" -m pip install --quiet --no-deps --requirement "$here/requirements.txt"
cp "$here/package.json" "$here/package-lock.json" "$to"
npm --prefix "$to" ci --ignore-scripts --no-audit --no-fund
