// Joining and sharing vector clocks.
#include "collectives/verify/clocks.h"

#include <algorithm>

#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

constexpr std::uint64_t kMostTimes = std::uint64_t{1} << 28;  // 1 GiB

void raise(Clocks::Time* clock, const Clocks::Time* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) clock[i] = std::max(clock[i], to[i]);
}

}  // namespace

Clocks::Clocks(const Network& network, const std::vector<bool>& watched)
    : dimension_(network.lanes.size(), kNone),
      states_(network.lanes.size()),
      messages_(network.slots) {
  for (std::size_t lane = 0; lane < watched.size(); ++lane) {
    if (watched[lane]) dimension_[lane] = static_cast<std::uint32_t>(dimensions_++);
  }
  if (std::uint64_t{dimensions_} * states_.size() > kMostTimes) {
    throw Refuted{"too many lanes depend on one another to follow who knows what of whom"};
  }
  clocks_.resize(states_.size() * dimensions_);
  earliest_.resize(states_.size() * blocks());
  for (std::uint32_t lane = 0; lane < states_.size(); ++lane) {
    if (watches(lane)) learn(lane, dimension_[lane], 1);
  }
}

void Clocks::receive(std::uint32_t lane, std::uint32_t sender, std::uint32_t slot) {
  const Message message = messages_[slot];
  const std::uint32_t d = dimension_[sender];
  if (sender != lane && (d == kNone || clock(lane)[d] < message.time)) {
    changes(lane);
    if (message.snapshot != kNone) learn(lane, snapshots_[message.snapshot]);
    if (d != kNone) learn(lane, d, message.time);
    states_[lane].has_learnt = true;
  }
  if (message.snapshot != kNone) release(message.snapshot);
}

void Clocks::send(std::uint32_t lane, std::uint32_t slot) {
  const std::uint32_t snapshot = snapshot_of(lane);
  if (snapshot != kNone) ++snapshots_[snapshot].users;
  messages_[slot] = {snapshot, states_[lane].now};
}

void Clocks::tick(std::uint32_t lane) {
  ++states_[lane].now;
  if (watches(lane)) learn(lane, dimension_[lane], states_[lane].now);
}

void Clocks::join(std::uint32_t first, std::uint32_t count) {
  if (count < 2) return;
  for (std::uint32_t i = 1; i < count; ++i) raise(clock(first), clock(first + i), dimensions_);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i > 0) std::copy_n(clock(first), dimensions_, clock(first + i));
    for (std::size_t b = 0; b < blocks(); ++b) note_earliest(first + i, b);
    changes(first + i);
    states_[first + i].has_learnt = true;
  }
  for (std::uint32_t i = 0; i < count; ++i) tick(first + i);
}

void Clocks::learn(std::uint32_t lane, const Snapshot& snapshot) {
  for (std::size_t b = 0; b < blocks(); ++b) {
    if (snapshot.latest[b] <= earliest(lane)[b]) continue;
    const std::size_t first = b * kBlock;
    raise(clock(lane) + first, snapshot.clock.data() + first,
          std::min(kBlock, dimensions_ - first));
    note_earliest(lane, b);
  }
}

void Clocks::learn(std::uint32_t lane, std::uint32_t dimension, Time time) {
  Time& known = clock(lane)[dimension];
  if (known >= time) return;
  const std::size_t block = dimension / kBlock;
  const bool was_earliest = known == earliest(lane)[block];
  known = time;
  if (was_earliest) note_earliest(lane, block);
}

void Clocks::note_earliest(std::uint32_t lane, std::size_t block) {
  const Time* first = clock(lane) + block * kBlock;
  earliest(lane)[block] =
      *std::min_element(first, first + std::min(kBlock, dimensions_ - block * kBlock));
}

std::uint32_t Clocks::snapshot_of(std::uint32_t lane) {
  LaneState& state = states_[lane];
  if (state.snapshot != kNone || !state.has_learnt) return state.snapshot;
  if (unused_.empty()) {
    if ((snapshots_.size() + 1) * dimensions_ > kMostTimes) {
      throw Refuted{"too many messages are under way at a time to follow who knows what of whom"};
    }
    unused_.push_back(static_cast<std::uint32_t>(snapshots_.size()));
    snapshots_.emplace_back();
  }
  state.snapshot = unused_.back();
  unused_.pop_back();
  Snapshot& snapshot = snapshots_[state.snapshot];
  snapshot.clock.assign(clock(lane), clock(lane) + dimensions_);
  snapshot.latest.clear();
  for (std::size_t b = 0; b < blocks(); ++b) {
    const auto first = snapshot.clock.begin() + static_cast<std::ptrdiff_t>(b * kBlock);
    const auto size = static_cast<std::ptrdiff_t>(std::min(kBlock, dimensions_ - b * kBlock));
    snapshot.latest.push_back(*std::max_element(first, first + size));
  }
  snapshot.users = 1;
  return state.snapshot;
}

void Clocks::release(std::uint32_t snapshot) {
  if (--snapshots_[snapshot].users == 0) unused_.push_back(snapshot);
}

void Clocks::changes(std::uint32_t lane) {
  LaneState& state = states_[lane];
  if (state.snapshot != kNone) release(state.snapshot);
  state.snapshot = kNone;
}

}  // namespace tutti::proof
