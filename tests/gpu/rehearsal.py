#!/usr/bin/env python3
"""gpu-check without a GPU: a folder like the bundle's, in which shell scripts take the programs' places and
pass, hang, crash, fail and spin. What the others found has to be complete; among them are real kernels, on the
device of threads (cuda_host_test).

    rehearsal.py GPU_CHECK CUDA_HOST_TEST
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

CASES = ("Passes", "Hangs", "Crashes", "Fails", "Spins", "AlsoPasses")

GPU_TEST = r"""#!/bin/sh
case "$1" in
  --gtest_brief=1) case "$2" in *=GpuCombine.*) exit 0 ;; esac; echo 'one of them fails'; exit 1 ;;
  --gtest_list_tests) case "$2" in *=GpuCombine.*) exit 0 ;; esac
                      %(real)s --gtest_list_tests --gtest_filter=CudaHostBlocks.OfSeveralThreads
                      printf 'GpuFake.\n'; for c in %(fake)s; do echo "  $c"; done ;;
  *filter=-*) ;;
  *=CudaHost*) exec %(real)s "$1" ;;
  *.Passes|*.AlsoPasses) echo passed ;;
  *.Hangs) sleep 1000 & sleep 1000 ;;
  *.Crashes) echo about to crash; touch "$(dirname "$0")/crashed"; kill -SEGV $$ ;;
  *.Fails) echo 'element 7 is wrong'; exit 1 ;;
  *.Spins) trap '' TERM INT HUP; while :; do echo spinning; done ;;
esac
"""

# Whatever is measured; LL128 is wrong from 1000 bytes on.
PERF = r"""#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in -e) size=$2 ;; esac; shift; done
case "$TUTTI_CUDA_PROTOCOLS $size" in
  "ll128 "[0-9]|"ll128 "[0-9][0-9]|"ll128 "[0-9][0-9][0-9]) ;;
  "ll128 "*) echo "wrong at $size"; exit 1 ;;
esac
echo "$size 2 float sum -1 9.5 1 1 0 9.5 1 1 0"
"""

GPU_COPY = r"""#!/bin/sh
if [ -e "$(dirname "$0")/../gone" ]; then echo "CUDA error 719"; exit 1; fi
echo "1048576 10.0 200.0 way"
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def bundle(root, real_test):
    write(root / "tests/gpu_test", GPU_TEST % {"real": real_test, "fake": " ".join(CASES)})
    for name in ("gpu_ipc_test", "gpu_nccl_test"):
        write(root / f"tests/{name}", "#!/bin/sh\n")
    for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "alltoall",
                 "alltoallv", "sendrecv"):
        write(root / f"bin/{name}_perf", PERF)
    for name in ("torch_nccl", "cupy_nccl"):
        write(root / f"tests/clients/{name}.py", "")
    write(root / "bin/gpu_copy", GPU_COPY)
    write(root / "bin/gpu_latency", "#!/bin/sh\n")
    write(root / "bin/tutti", '#!/bin/sh\n[ "$1" != run ] || shift 3\ncase "$1" in *.py|*python*) exit 0 ;; esac\nexec "$@"\n')


def check(gpu_check, root, *options):
    """The report, and seconds."""
    for old in root.glob("results/*"):
        old.unlink()
    began = time.monotonic()
    process = subprocess.run([sys.executable, gpu_check, "--root", root, "--limit", "6", "--budget", "100", *options],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    reports = list(root.glob("results/*.json"))
    if len(reports) != 1 or process.returncode != 1:
        sys.exit(f"exit status {process.returncode}, reports {reports}:\n{process.stdout}")
    return json.loads(reports[0].read_text())["checks"], time.monotonic() - began


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


def main():
    gpu_check, real_test = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        bundle(root, real_test)

        checks, seconds = check(gpu_check, root)
        by_name = {c["name"]: c for c in checks}
        outcome = lambda case: by_name[f"gpu_test GpuFake.{case}"]["outcome"]
        expect("outcomes", [outcome(c) for c in CASES],
               ["passed", "TIMED OUT", "FAILED", "FAILED", "TIMED OUT", "passed"])
        expect("real kernels", by_name["gpu_test CudaHostBlocks.OfSeveralThreads"]["outcome"], "passed")
        expect("a crash is named", "SIGSEGV" in by_name["gpu_test GpuFake.Crashes"]["output"], True)
        expect("what was written before", "about to crash" in by_name["gpu_test GpuFake.Crashes"]["output"], True)
        expect("a failure's text", "element 7 is wrong" in by_name["gpu_test GpuFake.Fails"]["output"], True)
        canary = {n.removeprefix("canary: ").removesuffix(", GPU"): c["outcome"] for n, c in by_name.items()
                  if n.startswith("canary: ")}
        expect("a way that fails, and another", [canary["ring ll128"], canary["ring simple"]], ["FAILED", "passed"])
        expect("what failed can be run again", by_name["canary: ring ll128, GPU"]["environment"],
               {"TUTTI_ALGORITHM": "ring", "TUTTI_CUDA_PROTOCOLS": "ll128"})
        expect("all others", {c["outcome"] for n, c in by_name.items()
                              if "GpuFake" not in n and "ll128" not in n and not n.startswith(("memcheck", "gpu_test -"))},
               {"passed"})
        names = [c["name"] for c in checks]
        expect("the cheapest come first", [n.split(":")[0].split(",")[0] for n in names[:2]], ["copies", "canary"])
        expect("in time", seconds < 90, True)

        checks, _ = check(gpu_check, root, "--only", "canary: ring ll128", "--bisect")
        bad = [int(c["name"].split("/ ")[1].split()[0]) for c in checks
               if c["name"].endswith(" bytes") and c["outcome"] == "FAILED"]
        expect("the smallest size that fails", 1000 <= min(bad) <= 1100, True)
        expect("another protocol is fine", {c["outcome"] for c in checks if c["name"].endswith("/ by simple")}, {"passed"})

        # A GPU that answers no more after a crash.
        write(root / "bin/gpu_copy", GPU_COPY.replace("../gone", "../tests/crashed"))
        (root / "tests/crashed").unlink(missing_ok=True)
        checks, _ = check(gpu_check, root)
        after = [c for c in checks if c["name"] == "gpu_test GpuFake.AlsoPasses"]
        expect("what cannot be run says why", ["no longer answers after: gpu_test GpuFake.Crashes" in c["output"]
                                               for c in after], [True])
        expect("what needs no GPU runs", [c["outcome"] for c in checks if "host memory" in c["name"]], ["passed"])
    print("rehearsed")


if __name__ == "__main__":
    main()
