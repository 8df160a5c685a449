#!/bin/sh
# Lays out what a machine with a GPU needs to check Tutti, from a build with the preset `gpu`: a
# folder that runs wherever it lies, with the shared libraries that such a machine may lack, and
# beside it the same as an archive. Only the C and C++ runtimes are taken from that machine.
#
#     bundle.sh BUILD FOLDER CUDA_VERSION ARCHITECTURES
#
# Environment: TUTTI_COMMIT, where the source is not a git checkout.
set -eu

build=$1 folder=$2 cuda=$3 architectures=$4
source=$(cd "$(dirname "$0")/../.." && pwd)
most_bytes=60000000

rm -rf "$folder" "$folder.tar.gz"
mkdir -p "$folder/bin" "$folder/lib/tutti" "$folder/tests"
cp "$build"/bin/tutti "$build"/bin/*_perf "$build"/bin/gpu_copy "$build"/bin/gpu_latency "$folder/bin"
cp -P "$build"/lib/libtutti.so* "$build"/lib/libtutti_parallel.so* "$build"/lib/libnccl.so* "$folder/lib"
cp "$build"/lib/tutti/*_cuda.so "$folder/lib/tutti"
for test in gpu_test gpu_ipc_test gpu_processes_test gpu_rank gpu_nccl_test cuda_combine_test \
    cuda_host_test; do
  cp "$build/tests/$test" "$folder/tests"
done
cp "$source/tests/bindings/nccl/pynccl.py" "$folder/tests"
cp -r "$source/tests/gpu/clients" "$folder/tests"
cp "$source/tools/gpu/gpu-check" "$source/LICENSE" "$folder"

# Everything that they load, but what comes with every Linux and has to fit its kernel or its C++.
binaries="$folder/bin/* $folder/tests/*_test $folder/tests/gpu_rank $folder/lib/libtutti.so $folder/lib/libtutti_parallel.so $folder/lib/libnccl.so $folder/lib/tutti/*"
system='linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s'
ldd $binaries | awk '$2 == "=>" {print $1, $3}' | sort -u | grep -Ev "^($system)[.]" |
  while read -r name path; do
    if [ "$path" = not ]; then
      echo "bundle: $name was not found on this machine" >&2
      exit 1
    fi
    [ -e "$folder/lib/$name" ] || cp -L "$path" "$folder/lib/$name"
  done
strip $binaries

# It must not work here only because of this machine's paths.
stray=$(env -i LC_ALL=C ldd $binaries 2>/dev/null | awk '$2 == "=>" {print $1, $3}' | sort -u |
        grep -Ev "^($system)[.]" | grep -v " $folder/" || true)
if [ -n "$stray" ]; then
  echo "bundle: libraries from outside of the folder (was it built with the preset gpu?):" >&2
  echo "$stray" >&2
  exit 1
fi

commit=${TUTTI_COMMIT:-$(git -C "$source" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
if [ -n "$(git -C "$source" status --porcelain --untracked-files=no 2>/dev/null)" ]; then
  commit="$commit, changed"
fi
cat > "$folder/bundle.json" <<END
{"commit": "$commit", "built": "$(date -u +%Y-%m-%dT%H:%MZ)", "cuda": "$cuda",
 "architectures": "$architectures"}
END

tar -C "$(dirname "$folder")" --owner=0 --group=0 -czf "$folder.tar.gz" "$(basename "$folder")"
bytes=$(stat -c %s "$folder.tar.gz")
echo "$folder.tar.gz: $((bytes / 100000 / 10)).$((bytes / 100000 % 10)) MB, of commit $commit"
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "bundle: that is more than the $((most_bytes / 1000000)) MB that it may have" >&2
  exit 1
fi
