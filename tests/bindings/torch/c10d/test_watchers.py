"""PyTorch's means to look into a job that stands still, over this backend: the flight recorder's dumps and
their analysis, and the handlers of c10d's control plane."""

import datetime
import json
import os
import pickle
import socket
import time
import urllib.request

import pytest
import torch
import torch.distributed as dist
from ranks import OLDEST, run

if not OLDEST:
    # The recorder imports the first for a dump: here once, and not in each rank.
    import torch._inductor.codecache  # noqa: F401
    from torch.distributed.flight_recorder import fr_trace

ERROR = dist.DistBackendError
pytestmark = pytest.mark.skipif(OLDEST, reason="this PyTorch records no calls of other backends")


def body_one_skips_a_call(rank, world, skips):
    """All but one rank call a broadcast that it leaves out."""
    for _ in range(3):
        dist.all_reduce(torch.ones(5))
    if rank == skips:
        time.sleep(1.5)
    with pytest.raises(ERROR, match=f"rank {skips}|timeout"):
        if rank != skips:
            dist.broadcast(torch.ones(7), 0)
        dist.all_reduce(torch.ones(5))


def test_the_dumps_name_the_rank_that_skips_a_call(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TORCH_FR_DUMP_ON_TIMEOUT", "1")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/trace_")
    run(3, body_one_skips_a_call, 1, timeout=1, ends=False)
    assert sorted(os.listdir(tmp_path)) == ["trace_0", "trace_1", "trace_2"]
    fr_trace.main([str(tmp_path), "--prefix", "trace_"])
    said = caplog.text
    assert "Collective sequence number: 4 has errors" in said, said
    assert "Culprit rank 1" in said and "Expected collective type: 'broadcast'" in said, said
    assert "missing ranks: {1}" in said, said  # of the call after it


def asked(port, handler):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/handler/{handler}", data=b"", method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def dumped(path):
    """What PyTorch has written there, or is about to: the answer does not wait for the thread that writes."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with open(path, "rb") as dump:
                return pickle.load(dump)
        except (FileNotFoundError, EOFError, pickle.UnpicklingError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def body_control_plane(rank, world, folder):
    from torch._C._distributed_c10d import _WorkerServer

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = _WorkerServer("127.0.0.1", port)
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(1 << 20), async_op=True).wait()

    def under_way():
        said = json.loads(asked(port, "fr_trace_json?backend=tutti"))
        return [(e["profiling_name"], e["state"], e["retired"]) for e in said.get("entries", [])]

    assert under_way() == []
    message = dist.irecv(torch.ones(3), 1 - rank)
    assert under_way() == [(f"tutti:recv {rank}<-{1 - rank}", "scheduled", False)]
    dist.barrier()
    dist.send(torch.ones(3), 1 - rank)
    message.wait()
    assert json.loads(asked(port, "c10d_health_check"))["healthy"] is True

    late = dist.new_group(timeout=datetime.timedelta(seconds=0.3))
    if rank == 0:
        with pytest.raises(ERROR, match="timeout of 0.3 s"):
            dist.all_reduce(torch.ones(3), group=late)
        said = json.loads(asked(port, "c10d_health_check"))
        assert said["healthy"] is False and said["unhealthy_backends"] == ["tutti"], said
        asked(port, "fr_dump_file?backend=tutti")
        entries = dumped(f"{folder}/trace_0")["entries"]
        states = [(e["profiling_name"].split(" ")[0], e["state"], e["retired"]) for e in entries]
        assert states[:2] == [("tutti:all_reduce", "completed", True)] * 2, states
        assert states[-1] == ("tutti:all_reduce", "scheduled", False), states
        assert all(e["duration_ms"] > 0 for e in entries[:2]), entries
    dist.barrier()
    server.shutdown()


def test_the_control_plane_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/trace_")
    run(2, body_control_plane, str(tmp_path))
