"""What a program of a test says at its end: over which backend it ran, and what the training has made."""

import hashlib

import torch
import torch.distributed as dist


def say(parameters, *others):
    """Prints, on rank 0, the default group's backend, and a digest of all bits."""
    digest = hashlib.sha256()
    for tensor in parameters:
        digest.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    for other in others:
        digest.update(repr(other).encode())
    if dist.get_rank() == 0:
        print(f"backend {dist.get_backend()}, ranks {dist.get_world_size()}, digest {digest.hexdigest()}", flush=True)
