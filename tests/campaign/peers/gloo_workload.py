"""A rank of a program for torch.distributed in the campaign, as mpi_workload.c: gloo_workload.py SECONDS BACKEND"""
import datetime
import json
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(event, **more):
    os.write(1, (json.dumps({"rank": rank, "at": time.monotonic(), "event": event} | more) + "\n").encode())


def main(seconds, backend):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    threading.Thread(target=lambda: (signal.sigwait({signal.SIGUSR1}), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    if backend == "tutti":
        import tutti.torch  # noqa: F401
    # The time in which a call has to be over: as short as the campaign's patience.
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=30))
    say("met", pid=os.getpid())
    begun = time.monotonic()
    try:
        for step in range(1 << 30):
            x = torch.arange(50000, dtype=torch.int64) * 13 + step + rank * 7919
            dist.all_reduce(x)
            right = size * (torch.arange(50000, dtype=torch.int64) * 13 + step) + 7919 * (size * (size - 1) // 2)
            if not torch.equal(x, right):
                say("wrong")
                os._exit(4)
            if step == 4:
                say("ready")
            if step % 8 == 7:
                stop = torch.tensor([int(time.monotonic() - begun > seconds)])
                dist.broadcast(stop, 0)
                if stop.item():
                    break
    except RuntimeError as error:
        say("error", which="first", text=str(error)[:1000])
        os._exit(3)
    say("leaving")
    dist.destroy_process_group()
    say("done")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
