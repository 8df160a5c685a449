// Decides whether all ranks of a new communicator have joined it. All survivors are to see the same
// when some ranks die meanwhile: either the communicator has come to be, and fails later, or it
// never has.
//
// Each host has one word for its state, which its ranks share, so the ranks of a host agree.
// "Ready" goes up the tree of hosts; the first host decides, and its decision goes down. If a rank
// dies before, the others do not conclude anything: they tell the first host. If that one is gone,
// the next host takes over: it asks all others what they have been told. After that they listen to
// no host before it. It follows a decision that one of them knows, and else decides that the
// communicator has failed. So any two hosts that live on decide alike. This needs ranks that count
// as gone to be gone; TUTTI_PEER_TIMEOUT decides that for hosts that are out of reach.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transport/control_blocks.h"
#include "transport/host/failure.h"
#include "transport/host_tree.h"
#include "transport/network/network.h"

namespace tutti {

class Joining {
 public:
  enum Type : std::uint32_t { kReady = 1, kDecision = 2, kQuestion = 6, kAnswer = 7, kGone = 8 };
  enum State : std::uint8_t { kOpen, kSaidReady, kDone, kDoneCmaWorks, kFailed };

  /// `blocks` hold this host's word, and its record of the first failure.
  Joining(HostTree& tree, ControlBlocks& blocks)
      : tree_(tree), blocks_(blocks), here_(blocks.first_here().joining) {}

  State state() const { return state_of(here_.load(std::memory_order_acquire)); }
  bool is_decided() const { return state() >= kDone; }
  bool is_done() const { return state() == kDone || state() == kDoneCmaWorks; }

  /// One rank of this host calls it when all of the host's ranks have joined. `cma_works`: kernels
  /// copy for all.
  void say_ready(bool cma_works);
  /// A rank of this host calls it that gives up before all of the host's ranks have joined. False
  /// where it is too late for that, and the others decide.
  bool give_up(const Failure& failure);
  /// One rank of this host calls it now and then, until there is a decision. `failure`: what that
  /// rank has seen that speaks against the communicator, if anything.
  void look(const std::optional<Failure>& failure);
  /// Asks `rank` for the decision; also a rank that has left knows it.
  void ask(int rank) const;
  /// Whether `host` has said what it has decided, or promised, to one that takes over.
  bool has_answered(int host) const;
  /// `failure` speaks against the communicator.
  void object(const Failure& failure);
  /// For error messages: the first rank of a host that has not said anything yet, or -1.
  int missing() const;

  /// True where the note was one of these.
  bool on_note(int rank, std::uint32_t type, std::span<const std::byte> bytes);
  /// The decision that there is, as a note.
  Network::Note decision() const { return {kDecision, word_bytes()}; }
  /// The decision, if there is one, to `host`.
  void tell_decision(int host) const;
  /// Tells the decision to rank `rank`, if this one is connected with it.
  void tell_connected(int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  static State state_of(std::uint64_t word) { return static_cast<State>(word & 0xff); }
  static int promise_of(std::uint64_t word) { return static_cast<int>(word >> 8) - 1; }

  /// False where it was decided, or where a later host has asked. `failure`: of kFailed, else null.
  bool decide(State state, int by, const Failure* failure);
  void promise(int host);
  std::vector<std::byte> word_bytes() const;
  void check_ready();
  void take_over(const Failure& failure);

  HostTree& tree_;
  ControlBlocks& blocks_;
  std::atomic<std::uint64_t>& here_;

  mutable std::mutex mutex_;
  bool ready_here_ = false;
  bool cma_works_ = true;
  std::set<int> ready_;             // hosts below
  std::optional<Failure> failure_;  // that speaks against it, or the one that was decided
  int decided_by_ = 0;
  Clock::time_point since_ = Clock::now(), asked_{};
  struct Answer {
    State state;
    std::optional<Failure> failure;
  };
  std::map<int, Answer> answers_;  // by host
};

}  // namespace tutti
