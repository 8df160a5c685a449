"""invariant=True: sums have the bits of the canonical expression, as C++ has them (docs/determinism.md)."""

import hashlib
import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import run_threads

import tutti

COUNT = 4099


def numbers(rank, dtype):
    """Sums of such numbers depend on their order."""
    return np.random.default_rng(rank).standard_normal(COUNT).astype(dtype)


def canonical(terms):
    """The balanced tree over the ranks, in the type of the terms."""
    if len(terms) == 1:
        return terms[0]
    half = 1
    while half * 2 < len(terms):
        half *= 2
    return canonical(terms[:half]) + canonical(terms[half:])


def expected(size, dtype):
    wide = np.float64 if dtype == np.float64 else np.float32
    return canonical([numbers(r, dtype).astype(wide) for r in range(size)]).astype(dtype)


def summed(dtype):
    def body(comm):
        return comm.all_reduce(numbers(comm.rank, dtype))

    return body


@pytest.mark.parametrize("size", [3, 4, 6])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_bits_are_those_of_the_canonical_expression(size, dtype):
    for result in run_threads(size, summed(dtype), invariant=True):
        assert result.tobytes() == expected(size, dtype).tobytes()


def test_other_algorithms_have_other_bits():
    for result in run_threads(4, summed(np.float32), algorithm="ring"):
        assert result.tobytes() != expected(4, np.float32).tobytes()


def test_what_is_made_of_a_communicator_has_the_mode():
    def body(comm):
        part = comm.split(0, key=-comm.rank)  # the ranks in the other order
        return part.all_reduce(numbers(part.rank, np.float32))

    for result in run_threads(6, body, invariant=True):
        assert result.tobytes() == expected(6, np.float32).tobytes()


def test_an_algorithm_that_is_not_invariant_is_refused():
    with pytest.raises(tutti.InvalidUsage, match="the bits of the algorithm ring .* are its own"):
        run_threads(3, summed(np.float32), invariant=True, algorithm="ring")


def test_ranks_that_disagree_are_told():
    unique = tutti.make_unique_id()
    said = {}

    def rank(r):
        try:
            tutti.Communicator.create(unique, r, 2, invariant=r == 0)
        except tutti.Mismatch as error:
            said[r] = str(error)

    threads = [threading.Thread(target=rank, args=(r,), daemon=True) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(said) == [0, 1]
    for text in said.values():
        assert "rank 0 asks for invariant bits and rank 1 does not" in text


def test_ranks_that_are_processes(job):
    ranks = job(
        3,
        """
        import hashlib
        comm = tutti.init(invariant=True)
        x = np.random.default_rng(comm.rank).standard_normal(4099).astype(np.float32)
        says(hashlib.sha256(comm.all_reduce(x).tobytes()).hexdigest())
        """,
    )
    digest = hashlib.sha256(expected(3, np.float32).tobytes()).hexdigest()
    assert [said[2] for said in ranks.next(3)] == [digest] * 3
    assert ranks.finish()[0] == 0
