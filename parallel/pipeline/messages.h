// The messages that follow from a schedule's actions, on which links, and between which ranks. The
// verifier, the simulator and the executor all read them here, so the proof is of the messages that
// run.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

struct StageMessage {
  int link = 0;
  int number = 0;     // on its link: it uses buffer number % buffers
  ActionId sender;    // the action that fills it
  ActionId receiver;  // the action that reads it
  bool local() const { return sender.rank == receiver.rank; }
};

/// A link from a stage to a neighbour.
struct StageLink {
  int from = 0;               // stage
  int to = 0;                 // stage: from + 1 for activations, from - 1 for gradients
  std::vector<int> messages;  // their indices, in order
  bool gradients() const { return to < from; }
  /// The pair of stages that it is between: both links between stages b and b + 1 have number b.
  int boundary() const { return gradients() ? to : from; }
};

/// All that goes from a rank to another, in the order in which it is sent.
struct RankPair {
  int from = 0, to = 0;       // ranks
  std::vector<int> messages;  // their indices, in order
};

struct Messages {
  static constexpr int kNone = -1;

  std::vector<StageMessage> all;
  std::vector<StageLink> links;
  std::vector<RankPair> pairs;          // those that carry anything
  std::vector<std::vector<int>> taken;  // by rank and action: the message it reads, or kNone
  std::vector<std::vector<int>> given;  // by rank and action: the message it fills, or kNone

  const StageMessage& operator[](int i) const { return all[static_cast<std::size_t>(i)]; }
  const StageLink& link_of(const StageMessage& m) const {
    return links[static_cast<std::size_t>(m.link)];
  }
  /// The message that has the same buffers before `m`; kNone for the first ones.
  int before(const StageMessage& m, int buffers) const {
    if (m.number < buffers) return kNone;
    return link_of(m).messages[static_cast<std::size_t>(m.number - buffers)];
  }
};

/// Of a schedule with complete actions, all in range, and with links that match (see verify.cpp,
/// which calls this, too): the k-th message that an action fills is the k-th that one reads.
Messages messages_of(const Schedule& schedule);

/// "the activation of micro-batch 5 from stage 1 (rank 1) to stage 2 (rank 2)".
std::string describe(const Schedule& schedule, const Messages& messages, int message);

}  // namespace tutti::parallel::pipeline
