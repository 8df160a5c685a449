"""Weights that move: from one layout into another, and from one job to another."""

import threading

import ml_dtypes
import numpy as np
import pytest
import tutti
from conftest import run_threads

FULL = np.arange(12 * 10, dtype=np.float32).reshape(12, 10)


def rows(comm):
    """The rows of FULL that rank 0 or 1 has."""
    begin, end = [(0, 5), (5, 12)][comm.rank]
    return tutti.Piece(FULL[begin:end].copy(), FULL.shape, (begin, 0))


def test_rows_become_columns():
    def body(comm):
        mine = np.zeros((12, 5), np.float32)
        target = {"w": tutti.Piece(mine, FULL.shape, (0, 5 * comm.rank))}
        tutti.reshard(comm, {"w": rows(comm)}, target)
        np.testing.assert_array_equal(mine, FULL[:, 5 * comm.rank : 5 * comm.rank + 5])

    run_threads(2, body)


def test_a_reshard_runs_again_and_converts():
    def body(comm):
        source = {"w": rows(comm), "step": np.array(3)} if comm.rank < 2 else {}
        whole, step = np.zeros(FULL.shape, ml_dtypes.bfloat16), np.array(0)
        target = {"w": whole, "step": step} if comm.rank == 2 else {}
        weights = tutti.Reshard(comm, source, target)
        for factor in (1, 2):
            weights.run()
            if comm.rank == 2:
                np.testing.assert_array_equal(whole, (factor * FULL).astype(ml_dtypes.bfloat16))
                assert step == 3
            comm.barrier()
            if comm.rank < 2:
                source["w"].array[:] *= 2
            comm.barrier()

    run_threads(3, body)


def test_pieces_in_a_list_are_one_tensor():
    def body(comm):
        parts = [tutti.Piece(FULL[i : i + 1].copy(), FULL.shape, (i, 0)) for i in range(comm.rank, 12, 2)]
        whole = np.zeros_like(FULL)
        tutti.reshard(comm, {"w": parts}, {"w": whole})
        np.testing.assert_array_equal(whole, FULL)

    run_threads(2, body)


def test_what_cannot_be_is_refused():
    def body(comm):
        whole = np.zeros_like(FULL)
        with pytest.raises(tutti.InvalidArgument, match="'w'"):  # nobody has the last rows
            tutti.reshard(comm, {"w": tutti.Piece(FULL[:6].copy(), FULL.shape, (0, 0))}, {"w": whole})
        with pytest.raises(tutti.InvalidArgument, match="'v'"):
            tutti.reshard(comm, {"w": FULL.copy()}, {"v": whole})
        with pytest.raises(TypeError):
            tutti.reshard(comm, {"w": np.array([None])}, {})

    run_threads(2, body)


def test_two_jobs(tmp_path):
    place = str(tmp_path / "place")

    def trainer(comm):
        piece = rows(comm)
        start = piece.array.copy()
        sender = tutti.WeightSender(comm, {"w": piece}, place)
        assert sender.send(1) == 0  # nobody is there
        started.set()
        for version in range(2, 6):
            piece.array[:] = version * start
            while sender.send(version) == 0:
                pass
        sender.leave()

    def server(comm):
        mine = np.zeros(FULL.shape, np.float32)
        receiver = tutti.WeightReceiver(comm, {"w": mine}, place, patience=20)
        assert receiver.version == 0
        versions = [receiver.receive() for _ in range(3)]
        assert versions == [2, 3, 4]
        np.testing.assert_array_equal(mine, 4 * FULL)
        assert receiver.receive() == receiver.version == 5
        np.testing.assert_array_equal(mine, 5 * FULL)

    started = threading.Event()
    thread = threading.Thread(target=run_threads, args=(2, trainer))
    thread.start()
    assert started.wait(20)
    run_threads(3, server)
    thread.join()


def test_a_receiver_without_a_sender_gives_up(tmp_path):
    def body(comm):
        receiver = tutti.WeightReceiver(comm, {"w": np.zeros(3)}, str(tmp_path), patience=0.2)
        with pytest.raises(tutti.TimedOut, match="no sending job"):
            receiver.receive()

    run_threads(1, body)


def test_dtensors_move(job):
    pytest.importorskip("torch", reason="torch is not installed")
    j = job(
        2,
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
        comm = tutti.init()
        dist.init_process_group("gloo", rank=comm.rank, world_size=2, init_method="file:///tmp/tutti-test-" + str(os.getppid()))
        mesh = init_device_mesh("cpu", (2,))
        full = torch.arange(70.0).reshape(7, 10)
        a = distribute_tensor(full, mesh, [Shard(0)])
        b = distribute_tensor(torch.zeros(7, 10, dtype=torch.bfloat16), mesh, [Shard(1)])
        c = distribute_tensor(torch.zeros(7, 10), mesh, [Replicate()])
        tutti.reshard(comm, {"w": a}, {"w": b})
        tutti.reshard(comm, {"w": a}, {"w": c})
        says(bool((b.full_tensor() == full.bfloat16()).all()), bool((c.to_local() == full).all()))
        dist.destroy_process_group()
        """,
    )
    assert [s[2:] for s in j.next(2)] == [[True, True]] * 2
    assert j.finish()[0] == 0
