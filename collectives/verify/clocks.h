// Vector clocks over a Network (Fidge 1988, Mattern 1989): a lane's clock says how much of every
// other lane's past it has learnt through messages. An action of a lane at some time comes before
// the present action of another lane if that lane has learnt of the time. Only lane order and
// messages count, not freed slots. So the order holds with any timing and any number of slots.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/verify/network.h"

namespace tutti::proof {

class Clocks {
 public:
  /// The number of times that a lane has sent, plus 1. 0: before it began.
  using Time = std::uint32_t;

  /// `watched`, by lane: whether later questions ask for others' knowledge of it.
  Clocks(const Network& network, const std::vector<bool>& watched);

  bool watches(std::uint32_t lane) const { return dimension_[lane] != kNone; }
  /// Watched lanes, numbered from 0 on, and their number.
  std::size_t dimension(std::uint32_t lane) const { return dimension_[lane]; }
  std::size_t dimensions() const { return dimensions_; }

  Time now(std::uint32_t lane) const { return states_[lane].now; }
  /// Whether `lane` has learnt of the action of `other`, a watched lane, at `time`.
  bool knows(std::uint32_t lane, std::uint32_t other, Time time) const {
    return lane == other || clock(lane)[dimension_[other]] >= time;
  }

  /// `lane` takes the message that `sender` put into `slot`.
  void receive(std::uint32_t lane, std::uint32_t sender, std::uint32_t slot);
  /// `lane` puts a message into `slot`. For several messages at a time, call it several times and
  /// then tick(): they tell the same.
  void send(std::uint32_t lane, std::uint32_t slot);
  /// Later actions of `lane` are not in the messages that it has sent.
  void tick(std::uint32_t lane);
  /// Lanes first ... first + count - 1 meet: each knows what any of them knows.
  void join(std::uint32_t first, std::uint32_t count);

 private:
  // A clock as of when it was sent, without its lane's own time, which messages carry themselves:
  // a lane that sends and sends without receiving shares one snapshot between all messages.
  struct Snapshot {
    std::vector<Time> clock;
    std::vector<Time> latest;  // by block
    std::uint32_t users = 0;   // messages under way, and the lane while it is up to date
  };
  struct Message {
    std::uint32_t snapshot = kNone;  // kNone: the sender knew of nobody else
    Time time = 0;
  };
  struct LaneState {
    Time now = 1;
    std::uint32_t snapshot = kNone;  // of its clock, if it has not changed since
    bool has_learnt = false;         // anything of others
  };

  Time* clock(std::uint32_t lane) { return clocks_.data() + lane * dimensions_; }
  const Time* clock(std::uint32_t lane) const { return clocks_.data() + lane * dimensions_; }
  Time* earliest(std::uint32_t lane) { return earliest_.data() + lane * blocks(); }
  std::size_t blocks() const { return (dimensions_ + kBlock - 1) / kBlock; }
  void learn(std::uint32_t lane, const Snapshot& snapshot);
  void learn(std::uint32_t lane, std::uint32_t dimension, Time time);
  void note_earliest(std::uint32_t lane, std::size_t block);
  std::uint32_t snapshot_of(std::uint32_t lane);
  void release(std::uint32_t snapshot);
  void changes(std::uint32_t lane);

  // Dimensions are taken by blocks. Nothing in a block is news if its latest time is no later than
  // the earliest that is known already; so if all lanes hear of all lanes by messages from all of
  // them, most of each message is skipped.
  static constexpr std::size_t kBlock = 64;

  std::vector<std::uint32_t> dimension_;  // by lane; kNone: not watched
  std::size_t dimensions_ = 0;
  std::vector<Time> clocks_;    // by lane, then dimension
  std::vector<Time> earliest_;  // by lane, then block
  std::vector<LaneState> states_;
  std::vector<Snapshot> snapshots_;
  std::vector<std::uint32_t> unused_;  // snapshots
  std::vector<Message> messages_;      // by slot
};

}  // namespace tutti::proof
