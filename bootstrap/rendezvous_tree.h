// The tree in which a roster goes down, in numbers: the server is at the top and the ranks follow
// in order, kFanOut below each. Up to kStar ranks all stand right below the server.
//
// Its purpose: N cards for N ranks are N^2 cards. Sent by one process, that is 400 MB for 1,024
// ranks with cards of 400 bytes; so each process sends at most kFanOut rosters, or kStar short
// ones.
#pragma once

#include <algorithm>

namespace tutti::tree {

constexpr int kServer = -1;
constexpr int kStar = 64;
constexpr int kFanOut = 8;

constexpr int fan_out(int size) { return size <= kStar ? kStar : kFanOut; }

/// The sender of the roster to `rank`: a rank, or kServer.
constexpr int parent(int rank, int size) { return rank / fan_out(size) - 1; }

/// The ranks right below `rank` (or kServer) are first_child() to end_child() - 1.
constexpr int first_child(int rank, int size) { return std::min((rank + 1) * fan_out(size), size); }
constexpr int end_child(int rank, int size) { return first_child(rank + 1, size); }
constexpr bool has_children(int rank, int size) { return first_child(rank, size) < size; }

}  // namespace tutti::tree
