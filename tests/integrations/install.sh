#!/bin/sh
# Installs the packages that the file $3 names into the folder $1, beside the environment $2.
set -eu
here=$(dirname "$0")
to=$1
project=$2
requirements=$3

test -x "$to/bin/python" || "$project/bin/python" -m venv "$to"
echo '*' > "$to/.gitignore"
# torch and what it needs are the project's, and the judge's processes import the project itself.
# What is installed here goes before them.
paths='import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")'
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
{
    "$project/bin/python" -c "$paths"
    (cd "$here/../.." && pwd)
} > "$("$to/bin/python" -c "$purelib")/project.pth"
"$to/bin/python" -m pip install --quiet --no-deps --requirement "$requirements"
