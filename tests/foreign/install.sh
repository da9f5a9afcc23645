#!/bin/sh
# Builds the servers of tests/foreign into the folder $1, beside the project's environment $2.
# About six minutes on two cores; everything after it works offline.
set -eu
here=$(dirname "$0")
to=$1
project=$2
llama=llama_cpp_python-0.3.36

test -x "$to/bin/python" || "$project/bin/python" -m venv "$to"
echo '*' > "$to/.gitignore"
# torch and what it needs (6 GB) are the project's; what is installed here goes before them.
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
"$project/bin/python" -c "$purelib" > "$("$to/bin/python" -c "$purelib")/project.pth"
"$to/bin/python" -m pip install --quiet --no-deps --requirement "$here/requirements.txt"

# llama.cpp is built once, from the copy inside llama-cpp-python's source distribution: its server, and
# the libraries that llama_cpp.server loads from there.
CMAKE_ARGS=-DLLAMA_BUILD=OFF "$to/bin/python" -m pip download --quiet --no-deps \
    --no-binary llama-cpp-python --dest "$to" llama-cpp-python==0.3.36
tar -xzf "$to/$llama.tar.gz" -C "$to"
nice -n 15 cmake --fresh -S "$to/$llama/vendor/llama.cpp" -B "$to/llama" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF
nice -n 15 cmake --build "$to/llama" --parallel 2 --target llama-server llama mtmd
CMAKE_ARGS=-DLLAMA_BUILD=OFF "$to/bin/python" -m pip install --quiet --no-deps "$to/$llama.tar.gz"

"$to/bin/python" "$here/random_models.py" "$to/models" "$to/$llama/vendor/llama.cpp/docs"
