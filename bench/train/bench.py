"""Training steps of one GPT (float32) by ranks without communication, by Tutti's engines with libtorch,
and by PyTorch's DDP, FSDP2, DTensor tensor parallelism and pipelining over gloo. Same sizes, data,
optimizer, clipping; one core and one thread for each rank. With a model that ranks share (tp, pp) they
compute as much as ranks that do not communicate: half of the layers on all sequences, with two ranks.

    make bench-train            or: bench.py [--build build] [--wheels build/wheels] [--rounds 7] ...

All contenders are started at once, and take turns of a few steps (A B C, C B A ...), so that whatever
else the machine does meets all of them alike. A contender's time in a turn is the median of its steps;
its ratio is the median, over the turns, of its time to that of the ranks without communication, of the
same framework, in the same turn. "core ms" is the time for which a rank's threads had a core: what it
computed, waiting left out; it says something on a machine that others use, too.

--nccl PATH adds Tutti's engines over that libnccl.so.2 ("nccl ddp" ...), on host memory, so that engines and
collectives can be judged apart. (Tutti's own, build/lib/libnccl.so.2, takes host memory; NVIDIA's does not.)
--limit: turns end when so many seconds are over for a model, whatever --rounds says.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"5M": dict(layers=6, width=256, heads=8, length=128, batch=4),
          "26M": dict(layers=8, width=512, heads=8, length=128, batch=2)}  # batch: of each rank
RANKS = "RANKS"  # as many as there are
CONTENDERS = {  # name: program, arguments, what its ratio is to
    "tutti alone": ("tutti", ["--alone"], "tutti alone"),
    "tutti ddp": ("tutti", ["--shard", "none"], "tutti alone"),
    "tutti zero1": ("tutti", ["--shard", "zero1"], "tutti alone"),
    "tutti fsdp": ("tutti", ["--shard", "fsdp"], "tutti alone"),
    "tutti tp": ("tutti", ["--tp", RANKS], "tutti alone"),
    "tutti pp": ("tutti", ["--pp", RANKS, "--micro-batches", 4], "tutti alone"),
    "nccl ddp": ("nccl", ["--shard", "none"], "tutti alone"),
    "nccl fsdp": ("nccl", ["--shard", "fsdp"], "tutti alone"),
    "nccl tp": ("nccl", ["--tp", RANKS], "tutti alone"),
    "nccl pp": ("nccl", ["--pp", RANKS, "--micro-batches", 4], "tutti alone"),
    "torch alone": ("torch", ["alone"], "torch alone"),
    "torch ddp": ("torch", ["ddp"], "torch alone"),
    "torch fsdp2": ("torch", ["fsdp2"], "torch alone"),
    "torch tp": ("torch", ["tp"], "torch alone"),
    "torch pp": ("torch", ["pp"], "torch alone"),
}


def say(text):
    """What goes on, for a person who waits: one line, which the next one replaces."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Contender:
    def __init__(self, name, model, options):
        program, arguments, self.baseline = CONTENDERS[name]
        self.name, self.turns, self.waited, self.computed = name, [], [], []
        total = model["batch"] * options.ranks
        if program in ("tutti", "nccl"):
            shared = RANKS in arguments
            arguments = [options.ranks if a is RANKS else a for a in arguments]
            command = [options.build / "bench/train_worker", *arguments,
                       "--dp", 1 if shared else options.ranks, "--text", options.text,
                       "--batch", total, "--threads", 1]
            for size in ("layers", "width", "heads", "length"):
                command += [f"--{size}", model[size]]
            if program == "nccl":
                command += ["--nccl", options.nccl]
        else:
            command = [sys.executable, ROOT / "bench/train/torch_worker.py", *arguments,
                       *(model[s] for s in ("layers", "width", "heads", "length")), total,
                       options.text]
        cores = sorted(os.sched_getaffinity(0))
        port, self.ranks = free_port(), []
        for rank in range(options.ranks):
            environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank),
                               WORLD_SIZE=str(options.ranks), LOCAL_WORLD_SIZE=str(options.ranks),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
            if program == "torch":
                wheels = options.wheels
                environment["PYTHONPATH"] = f"{wheels}/torch-2.15.0:{wheels}/common"
                environment["LD_PRELOAD"] = str(options.build / "lib/libnccl.so.2")
                environment["PYTHONWARNINGS"] = "ignore"  # there is no numpy, and nothing needs it
            core = {cores[rank % len(cores)]}
            self.ranks.append(subprocess.Popen(
                [str(c) for c in command], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True,
                preexec_fn=lambda core=core: os.sched_setaffinity(0, core)))

    def answers(self):
        result = []
        for number, rank in enumerate(self.ranks):
            line = rank.stdout.readline()
            if not line:
                raise SystemExit(f"{self.name}: rank {number} has ended with {rank.wait()}")
            result.append(json.loads(line))
        return result

    def turn(self, steps):
        for rank in self.ranks:
            try:
                rank.stdin.write(f"{steps}\n")
                rank.stdin.flush()
            except BrokenPipeError:  # it has ended, which its answer will say
                pass
        self.last = self.answers()
        return (max(statistics.median(a["times"]) for a in self.last),
                *(statistics.mean(statistics.median(a[what]) for a in self.last)
                  for what in ("waited", "computed")))

    def end(self):
        for rank in self.ranks:
            try:
                rank.stdin.close()
            except BrokenPipeError:
                pass
        for rank in self.ranks:
            try:
                rank.wait(20)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()


def measure(title, model, options):
    contenders, since = {}, time.monotonic()
    try:
        for name in options.contenders:
            say(f"{title}: {name} starts")
            contenders[name] = Contender(name, model, options)
            parameters = contenders[name].answers()[0]["ready"]
        for contender in contenders.values():
            say(f"{title}: {contender.name} warms up")
            contender.turn(options.warm_up)
        first = time.monotonic()
        for turn in range(options.rounds):
            passed, each = time.monotonic() - since, (time.monotonic() - first) / max(turn, 1)
            if turn > 0 and passed + each > options.limit:
                say("")
                print(f"{title}: {turn} turns of {options.rounds}, as --limit {options.limit:.0f} would be over")
                break
            left = min(each * (options.rounds - turn), options.limit - passed)
            left = f", {left:.0f} s to go" if turn > 0 else ""
            say(f"{title}: turn {turn + 1} of {options.rounds}{left}")
            order = list(contenders.values())
            for contender in order if turn % 2 == 0 else reversed(order):
                step, waited, computed = contender.turn(options.steps)
                contender.turns.append(step)
                contender.waited.append(waited)
                contender.computed.append(computed)
        rows = []
        for contender in contenders.values():
            base = contenders.get(contender.baseline)
            rows.append({
                "contender": contender.name, "step_ms": statistics.median(contender.turns),
                "turns_ms": contender.turns, "waited_ms": statistics.median(contender.waited),
                "computed_ms": statistics.median(contender.computed),
                "ratio": statistics.median(t / b for t, b in zip(contender.turns, base.turns))
                if base else None,
                "computed_ratio": statistics.median(
                    t / b for t, b in zip(contender.computed, base.computed)) if base else None,
                "exposed_ms": statistics.median(t - b for t, b in zip(contender.turns, base.turns))
                if base else None,
                "peak_bytes": max(a["peak"] for a in contender.last),
                "loss": contender.last[0]["loss"]})
        say("")
        return parameters, rows
    finally:
        for contender in contenders.values():
            contender.end()


def table(name, parameters, rows, options):
    print(f"\n{name}: {parameters / 1e6:.1f} M parameters, {options.ranks} ranks, "
          f"{len(rows[0]['turns_ms'])} turns of {options.steps} steps")
    print(f"{'':14}{'step ms':>10}{'ratio':>8}{'exposed ms':>12}{'waited ms':>11}{'core ms':>9}{'ratio':>8}"
          f"{'peak MB':>9}{'loss':>8}")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        computed = "" if row["computed_ratio"] is None else f"{row['computed_ratio']:.3f}"
        exposed = "" if row["exposed_ms"] is None else f"{row['exposed_ms']:.1f}"
        waited = "" if row["contender"].startswith("torch") else f"{row['waited_ms']:.1f}"
        print(f"{row['contender']:14}{row['step_ms']:10.1f}{ratio:>8}{exposed:>12}{waited:>11}"
              f"{row['computed_ms']:9.1f}{computed:>8}{row['peak_bytes'] / 1e6:9.0f}{row['loss']:8.3f}")
    sys.stdout.flush()


def chart(results):
    """Bars: the ratio of each contender, for each model."""
    bars = [(model, row["contender"], row["ratio"]) for model, result in results.items()
            for row in result["rows"] if row["ratio"] and not row["contender"].endswith("alone")]
    height, scale = 30 + 26 * len(bars), 360 / max([2.0, *(b[2] for b in bars)])
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="620" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             '<text x="10" y="16">time of a training step, where 1 is without communication</text>']
    for i, (model, name, ratio) in enumerate(bars):
        y = 28 + 26 * i
        colour = {"tutti": "#0072b2", "nccl": "#009e73"}.get(name.split()[0], "#d55e00")
        lines += [f'<text x="10" y="{y + 14}">{model} {name}</text>',
                  f'<rect x="130" y="{y}" width="{ratio * scale:.1f}" height="18" fill="{colour}"/>',
                  f'<text x="{136 + ratio * scale:.1f}" y="{y + 14}">{ratio:.3f}</text>']
    x = 130 + scale
    lines += [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="24" y2="{height}" stroke="#fff" stroke-dasharray="3"/>',
              "</svg>"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--wheels", type=pathlib.Path, default=ROOT / "build/wheels")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=None, help="some of them only")
    parser.add_argument("--nccl", type=pathlib.Path, help="a libnccl.so.2 that Tutti's engines run over as well")
    parser.add_argument("--limit", type=float, default=300, help="seconds for each model, beyond the first turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--text", default=str(ROOT))
    parser.add_argument("-o", "--output", type=pathlib.Path, help="a folder for train.json and train.svg")
    options = parser.parse_args()
    if options.contenders is None:
        options.contenders = [c for c in CONTENDERS if options.nccl or not c.startswith("nccl")]
    if options.nccl is None and any(c.startswith("nccl") for c in options.contenders):
        parser.error("these contenders need --nccl PATH, the library that they run over")
    if not (options.wheels / "common/complete").exists():
        print("PyTorch for Python is not installed, so its engines are left out: make bench-train")
        options.contenders = [c for c in options.contenders if c.startswith("tutti")]
    results = {}
    for name in options.models:
        parameters, rows = measure(name, MODELS[name], options)
        table(name, parameters, rows, options)
        results[name] = {"parameters": parameters, "ranks": options.ranks, "rows": rows}
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "train.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.output / "train.svg").write_text(chart(results))


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
