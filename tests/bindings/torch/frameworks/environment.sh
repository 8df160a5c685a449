#!/bin/sh
# Makes a virtual environment with the frameworks that train over torch.distributed, beside the PyTorch
# that `make test-torch` has installed. Each framework is installed by itself, so one that cannot be
# had does not keep the others away; its tests are skipped then.
# Usage: environment.sh FOLDER TORCH COMMON NCCL: where the environment goes, and the three folders of PyTorch.
set -eu

folder=$1
torch=$2
python=$(command -v python3)

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "frameworks are not tested: PyTorch 2.15 needs Python 3.11 or newer" >&2
  exit 1
}
[ -x "$folder/bin/pip" ] || "$python" -m venv "$folder"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
realpath "$2" "$3" "$4" >"$site/pytorch.pth"
# pip sees this record before the wheel's own. So it takes PyTorch as installed, and does not ask for the
# libraries of CUDA that an import does not need. PyTorch finds its own backends by the entry points.
record=$(basename "$torch"/torch-*.dist-info)
version=${record#torch-}
mkdir -p "$site/$record"
printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "${version%.dist-info}" >"$site/$record/METADATA"
cp "$torch/$record/entry_points.txt" "$site/$record"

install() {
  name=$1
  shift
  [ ! -e "$folder/$name.complete" ] || return 0
  echo "installing $name" >&2
  if DS_BUILD_OPS=0 "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >"$folder/$name.log" 2>&1; then
    touch "$folder/$name.complete"
  else
    echo "$name is not tested: pip cannot get it: $(grep -i error "$folder/$name.log" | head -n 1)" >&2
  fi
}

install pytest pytest numpy expecttest
install transformers accelerate transformers
install lightning pytorch-lightning
install ray 'ray[train]'
install torchft torchft-nightly parameterized
install torchtitan torchtitan triton
# Its build takes the PyTorch that is there, and so what it is built with has to be there, too.
install build wheel setuptools
install deepspeed --no-build-isolation deepspeed
