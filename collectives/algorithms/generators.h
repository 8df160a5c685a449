// All generators: each emits one rank's part. The head of the file with the algorithm's name
// explains the algorithm. Generators take requests for one slice (lanes = 1); sliced() in common.h
// makes several slices of it.
#pragma once

#include "collectives/algorithms.h"

namespace tutti::algorithm {

// ring.cpp
RankPlan ring_all_reduce(const PlanRequest& request, int rank);
RankPlan ring_all_gather(const PlanRequest& request, int rank);
RankPlan ring_reduce_scatter(const PlanRequest& request, int rank);
RankPlan ring_all_gather_v(const PlanRequest& request, int rank);
RankPlan ring_reduce_scatter_v(const PlanRequest& request, int rank);

// tree.cpp
RankPlan tree_all_reduce(const PlanRequest& request, int rank);
RankPlan tree_broadcast(const PlanRequest& request, int rank);
RankPlan tree_reduce(const PlanRequest& request, int rank);

// recursive_doubling.cpp, recursive_halving.cpp
RankPlan recursive_doubling_all_reduce(const PlanRequest& request, int rank);
RankPlan recursive_doubling_all_gather(const PlanRequest& request, int rank);
RankPlan recursive_halving_all_reduce(const PlanRequest& request, int rank);
RankPlan recursive_halving_reduce_scatter(const PlanRequest& request, int rank);

// shots.cpp
RankPlan one_shot_all_reduce(const PlanRequest& request, int rank);
RankPlan two_shot_all_reduce(const PlanRequest& request, int rank);
RankPlan two_shot_reduce(const PlanRequest& request, int rank);
RankPlan one_shot_window_all_reduce(const PlanRequest& request, int rank);
RankPlan two_shot_window_all_reduce(const PlanRequest& request, int rank);

// direct.cpp
RankPlan direct_all_gather(const PlanRequest& request, int rank);
RankPlan direct_reduce_scatter(const PlanRequest& request, int rank);
RankPlan direct_broadcast(const PlanRequest& request, int rank);
RankPlan direct_reduce(const PlanRequest& request, int rank);
RankPlan direct_gather(const PlanRequest& request, int rank);
RankPlan direct_scatter(const PlanRequest& request, int rank);
RankPlan direct_all_to_all(const PlanRequest& request, int rank);
RankPlan direct_all_gather_v(const PlanRequest& request, int rank);
RankPlan direct_reduce_scatter_v(const PlanRequest& request, int rank);

// compressed.cpp
RankPlan two_shot_compressed_all_reduce(const PlanRequest& request, int rank);
RankPlan direct_compressed_reduce_scatter(const PlanRequest& request, int rank);

// direct_window.cpp
RankPlan direct_window_all_gather(const PlanRequest& request, int rank);
RankPlan direct_window_reduce_scatter(const PlanRequest& request, int rank);
RankPlan direct_window_broadcast(const PlanRequest& request, int rank);
RankPlan direct_window_reduce(const PlanRequest& request, int rank);
RankPlan direct_window_gather(const PlanRequest& request, int rank);
RankPlan direct_window_scatter(const PlanRequest& request, int rank);
RankPlan direct_window_all_to_all(const PlanRequest& request, int rank);
RankPlan direct_window_all_to_all_v(const PlanRequest& request, int rank);
RankPlan direct_window_all_gather_v(const PlanRequest& request, int rank);
RankPlan direct_window_reduce_scatter_v(const PlanRequest& request, int rank);

// shared.cpp
RankPlan shared_all_gather(const PlanRequest& request, int rank);
RankPlan shared_all_reduce(const PlanRequest& request, int rank);
RankPlan shared_broadcast(const PlanRequest& request, int rank);

// split_window.cpp
RankPlan split_window_broadcast(const PlanRequest& request, int rank);
RankPlan split_window_reduce(const PlanRequest& request, int rank);

// hierarchical_direct.cpp
RankPlan hierarchical_direct_all_reduce(const PlanRequest& request, int rank);
RankPlan hierarchical_direct_reduce_scatter(const PlanRequest& request, int rank);
RankPlan hierarchical_direct_reduce_scatter_v(const PlanRequest& request, int rank);
RankPlan hierarchical_direct_reduce(const PlanRequest& request, int rank);
RankPlan hierarchical_direct_all_gather(const PlanRequest& request, int rank);
RankPlan hierarchical_pipelined_all_reduce(const PlanRequest& request, int rank);
RankPlan hierarchical_pipelined_reduce_scatter(const PlanRequest& request, int rank);
RankPlan hierarchical_pipelined_all_gather(const PlanRequest& request, int rank);
RankPlan hierarchical_chain_broadcast(const PlanRequest& request, int rank);
RankPlan hierarchical_binomial_broadcast(const PlanRequest& request, int rank);
RankPlan hierarchical_chain_reduce(const PlanRequest& request, int rank);
RankPlan hierarchical_binomial_reduce(const PlanRequest& request, int rank);

// chain.cpp
RankPlan chain_broadcast(const PlanRequest& request, int rank);
RankPlan chain_reduce(const PlanRequest& request, int rank);

// bruck.cpp
RankPlan bruck_all_gather(const PlanRequest& request, int rank);
RankPlan bruck_reduce_scatter(const PlanRequest& request, int rank);

// binomial.cpp
RankPlan binomial_gather(const PlanRequest& request, int rank);
RankPlan binomial_scatter(const PlanRequest& request, int rank);

// pairwise.cpp, neighbours.cpp, barriers.cpp
RankPlan pairwise_all_to_all(const PlanRequest& request, int rank);
RankPlan pairwise_all_to_all_v(const PlanRequest& request, int rank);
RankPlan neighbours_send_recv(const PlanRequest& request, int rank);
RankPlan dissemination_barrier(const PlanRequest& request, int rank);
RankPlan hierarchical_barrier(const PlanRequest& request, int rank);

}  // namespace tutti::algorithm
