// The verifier: proves a schedule, for every possible timing, before it runs.
//
// Ranks meet in bounded first-in first-out links alone (schedule.h), so the same messages move
// whatever the timing, and one run stands for all. The proof says:
//
//  - form: every stage has a rank, and runs on that one;
//  - every stage does its forward and its backward (in one, or in both parts) of every micro-batch,
//    each once, and in that order;
//  - order: a stage takes out of a link the message that it expects: the k-th message that goes in
//    is of the same micro-batch as the k-th that is taken out;
//  - no deadlock: with the declared buffers, every action starts;
//  - memory: no rank keeps more activations than declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule.h"

namespace tutti::parallel::pipeline {

struct Verdict {
  bool proved = false;
  bool matches = false;   // form, completeness and order are right: its messages can be followed
  std::string story;      // empty when proved; else what is wrong, and where
  std::vector<int> live;  // by rank: the most activations that it keeps; when proved
  std::uint64_t actions = 0;   // of all ranks, when they match
  std::uint64_t messages = 0;  // between ranks, when proved
};

/// Any schedule, also one that is out of all range.
Verdict verify(const Schedule& schedule);
/// Throws Error(unproven_plan), with the story, unless it is proved.
void require_proof(const Schedule& schedule);

/// What a schedule has at most; the verifier refuses more, and so does the reader of a text.
struct Limits {
  static constexpr int ranks = 4096;
  static constexpr int stages = 16'384;
  static constexpr int micro_batches = 65'536;
  static constexpr int buffers = 65'536;
  static constexpr int live = 1 << 30;
  static constexpr std::uint64_t actions = 1u << 24;  // of all ranks
};

}  // namespace tutti::parallel::pipeline
