"""A whole engine, vLLM on CPUs, over Tutti and over vLLM's own shared memory: tokens per second, and the time in
calls of the communicator.

    python bench/torch/serving.py [--turns 9] [options of examples/python/serve.py] [-o FILE]

One engine serves the same prompts in turn: between two rounds its workers take another communicator for the group of
tensor parallelism. All else stays as it is: the workers, their cores, the weights. "gloo" is what vLLM falls back to
where its shared memory does not serve. The time in calls is that of the slowest rank, and has its waits for others.
Each round has to make the same tokens.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples/python"
sys.path[:0] = [str(HERE), str(EXAMPLES)]

CALLS = ("all_reduce", "all_gather", "gather")


class Turns:
    """What each worker of vLLM can do besides (its `worker_extension_cls`)."""

    def communicators(self):
        """Makes them, on all ranks; returns the names."""
        import torch.distributed as dist
        from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator, _CPUSHMDistributed
        from vllm.distributed.parallel_state import get_tp_group

        self.group = get_tp_group().device_communicator
        self.spent, self.asked = 0.0, 0

        def timed(call):
            def run(*arguments, **named):
                begin = time.perf_counter()
                try:
                    return call(*arguments, **named)
                finally:
                    self.spent += time.perf_counter() - begin
                    self.asked += 1

            return run

        def calls_of(communicator):
            return {name: timed(getattr(communicator, name)) for name in CALLS}

        def of_vllm(make, device_group):
            other = CpuCommunicator.__new__(CpuCommunicator)
            other.__dict__.update(self.group.__dict__, device_group=device_group)
            other.dist_module = make(other)
            return calls_of(other)

        gloo = dist.new_group(self.group.ranks, backend="gloo")
        self.known = {"tutti": calls_of(self.group), "gloo": of_vllm(lambda _: dist, gloo)}
        try:
            self.known["vllm"] = of_vllm(_CPUSHMDistributed, gloo)
        except (AttributeError, RuntimeError) as error:
            print(f"# vLLM's shared memory is missing: {error}", flush=True)
        return list(self.known)

    def take(self, name):
        """From now on; returns seconds and calls since the last time."""
        figures = self.spent, self.asked
        self.spent, self.asked = 0.0, 0
        self.group.__dict__.update(self.known[name])
        return figures


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def main():
    import ranks
    import serve

    serve.PARSER.description = __doc__.split("\n")[0]
    serve.PARSER.add_argument("--turns", type=int, default=9)
    serve.PARSER.add_argument("-o", dest="output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = serve.PARSER.parse_args()
    os.environ["TUTTI_VLLM"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])  # the workers'
    rates, times, tokens = {}, {}, set()
    with tempfile.TemporaryDirectory() as folder:
        llm = serve.start(options, folder, worker_extension_cls="serving.Turns")
        names = llm.collective_rpc("communicators")[0]
        for turn in range(options.turns + 1):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                llm.collective_rpc("take", args=(name,))
                begin = time.perf_counter()
                answers = serve.answers_of(llm, options)
                took = time.perf_counter() - begin
                spent, calls = max(llm.collective_rpc("take", args=(name,)))
                tokens.add(str([list(a.outputs[0].token_ids) for a in answers]))
                if turn:  # the first one warms up
                    rates.setdefault(name, []).append(options.prompts * options.tokens / took)
                    times.setdefault(name, []).append(spent)
        llm.collective_rpc("take", args=("tutti",))
    for name in names:
        rate, ms = statistics.median(rates[name]), 1e3 * statistics.median(times[name])
        line = f"{name:6} {rate:9.1f} tokens/s, {ms:8.2f} ms in {calls} calls"
        if name != "tutti":
            line += "; tokens/s of Tutti to it " + spread([t / n for t, n in zip(rates["tutti"], rates[name])])
            line += ", Tutti's time in calls to it " + spread([t / n for t, n in zip(times["tutti"], times[name])])
        print(line, flush=True)
    print(f"# {'the same tokens' if len(tokens) == 1 else f'{len(tokens)} DIFFERENT RESULTS'} in all rounds")
    ranks.keep(dict(rates=rates, times=times, calls=calls), options)


if __name__ == "__main__":
    main()
