// 2. Three plans, all by a ring: each rank sends to its next rank, and receives from its previous
// one.
//
// Around a ring of four, chunk 0's sum begins at rank 1, which sends its own part to rank 2. Rank 2
// adds its own and sends on, rank 3 does too, and rank 0, the last one, has the sum of all:
//
//     rank 1: to(2) <- in[0]    rank 2: to(3) <- from(1) + in[0]    rank 3: to(0) <- from(2) +
//     in[0] rank 0: out[0] <= from(3) + in[0]
//
// At the same time the three other chunks make the same journey, each from another rank on. So
// every rank always has something to send, and all links are busy: this is reduce_scatter.
// all_gather is the journey without sums, and all_reduce the one after the other. A rank sends 2
// (n-1)/n of the data in all, and no algorithm can do with less.
//
// In the library: collectives/algorithms/ring.cpp, with the same three plans, step by step (a test
// compares the texts), and two dozen other algorithms beside it, as a ring takes too many hops
// where the data are short. collectives/model/ predicts which one is the fastest.
#pragma once

#include "plan.h"

namespace small {

/// The plan for that many ranks, 1 or more.
Plan ring(Collective collective, int ranks);

}  // namespace small
