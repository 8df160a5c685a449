"""torchft's own tests, which come with its package, with Tutti's process groups in place of gloo's."""

import datetime
from unittest import mock

import pytest

pytest.importorskip("torchft", reason="needs torchft: make test-frameworks")

import torch.distributed as dist
import torch.multiprocessing
import torchft.manager_integ_test as of_managers
import torchft.process_group_test as of_groups
import torchft.reconfigure_test as of_reconfigure

from tutti.torch import _backend
from tutti.torch.torchft import ProcessGroupTutti


class TestGroups(of_groups.NormalGlooMultiPgTest):
    """Three ranks as threads: eight operations, and each of them once more with a rank that leaves."""

    @classmethod
    def _create_pg(cls, backend):
        return ProcessGroupTutti(timeout=datetime.timedelta(seconds=30))  # to meet, on a loaded machine


def _resizes(rank, port):
    of_reconfigure._resize_worker(rank, port, "tutti")


def test_a_group_of_pytorch_gets_other_ranks_and_recovers():
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(_resizes, args=(store.port,), nprocs=3)


def _reconfigurable(store, rank, world, enable_reconfigure):
    assert enable_reconfigure
    return _backend(store, rank, world, datetime.timedelta(seconds=60), "native", reconfigurable=True)


class TestManagers(of_managers.ManagerIntegTest):
    """Replicas that train under a Manager, and one of them fails and comes back."""

    test_quorum_timeout = None  # of no group, and of a second: a loaded machine takes longer

    def run(self, result=None):
        with (
            mock.patch.object(of_managers, "ProcessGroupGloo", ProcessGroupTutti),
            mock.patch.object(dist, "ProcessGroupGloo", _reconfigurable),
        ):
            return super().run(result)
