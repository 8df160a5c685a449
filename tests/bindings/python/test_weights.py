"""Weights that move: from one layout into another, and from one job to another."""

import json
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


def test_the_layout_of_all_ranks_is_json():
    def body(comm):
        state = {"w": rows(comm), "step": np.array(3)} if comm.rank < 2 else {}
        return json.loads(tutti.layout(comm, state))

    for layout in run_threads(3, body):
        assert layout["ranks"] == 3
        w, step = sorted(layout["tensors"], key=lambda t: -len(t["shape"]))
        assert (w["name"], w["type"], w["shape"]) == ("w", "float32", [12, 10])
        assert [(p["rank"], p["box"]) for p in w["pieces"]] == [(0, [[0, 5], [0, 10]]), (1, [[5, 12], [0, 10]])]
        assert (step["type"], len(step["pieces"])) == ("int64", 2)


def test_a_state_may_be_that_of_a_module():
    class Module:
        def __init__(self, array):
            self.array = array

        def state_dict(self):
            return {"w": self.array}

    def body(comm):
        mine = Module(np.zeros_like(FULL))
        tutti.reshard(comm, Module(FULL.copy()), mine)
        np.testing.assert_array_equal(mine.array, FULL)

    run_threads(2, body)


def test_window_memory_is_read_by_others():
    def body(comm):
        source, whole = rows(comm), tutti.zeros(FULL.shape, np.float32)
        window = tutti.empty(source.array.shape, np.float32)
        window[:] = source.array
        weights = tutti.Reshard(comm, {"w": tutti.Piece(window, source.shape, source.offset)}, {"w": whole})
        for factor in (1, 3):
            window[:] = factor * source.array
            weights.run()
            np.testing.assert_array_equal(whole, factor * FULL)

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
