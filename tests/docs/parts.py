"""What the parts of programs in Python on pages take for granted: blocks.py puts the block of a page with
`<!-- part: NAME -->` in the place of the line `# PART(NAME)`. Each rank of two runs the whole."""

import os

import numpy as np
import tutti

comm = tutti.init()
peer = other = 1 - comm.rank


def futures():
    gradients = [np.full(5, 1.0 + comm.rank), np.full(3, 2.0 + comm.rank)]
    # PART(futures)
    assert (gradients[0] == 1.5).all() and (gradients[1] == 2.5).all()


def window():
    mine, x, offset = tutti.empty(4, np.int32), np.array([7 + comm.rank], np.int32), 2
    mine[:] = 0
    # PART(window_py)
    assert list(mine) == [0, 0, 7 + peer, 0]


futures()
window()
comm.destroy()
