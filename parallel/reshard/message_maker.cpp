#include "parallel/reshard/message_maker.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "parallel/agreement.h"

namespace tutti::parallel::reshard {

std::size_t MessageMaker::LaneHash::operator()(const LaneName& l) const {
  return mix(mix(static_cast<std::uint64_t>(l.from), static_cast<std::uint64_t>(l.to)), l.after);
}

void MessageMaker::begin() {
  sent_.resize(plan_.hosts.size());
  received_.resize(plan_.hosts.size());
}

std::uint32_t MessageMaker::add(const Move& move, int from, int to, std::uint64_t bytes,
                                std::uint32_t after) {
  constexpr std::uint64_t kDirect = ~std::uint64_t{0}, kUnbounded = ~std::uint64_t{0};
  sent_[index(from)] += bytes;
  received_[index(to)] += bytes;
  const std::uint64_t most = from == to ? kUnbounded
                             : plan_.hosts[index(from)] == plan_.hosts[index(to)]
                                 ? options_.host_message_bytes
                                 : options_.message_bytes;
  Lane& lane = lanes_[{from, to, move.relay ? after : kDirect}];
  // What is large goes alone: if it lies in one run, nobody has to pack it.
  const bool alone = bytes >= most / 8;
  std::uint32_t message = lane.open;
  if (alone || lane.room < bytes) {
    message = static_cast<std::uint32_t>(keys_.size());
    keys_.push_back(move.relay ? after + 1 : lane.next_key++);
    if (!alone) {
      lane.open = message;
      lane.room = most;
    }
  }
  if (!alone) lane.room -= bytes;
  hops_.push_back({from, to, bytes, message});
  plan_.moves.push_back(move);
  return keys_[message];
}

void MessageMaker::gather() {
  std::vector<Message> created(keys_.size());
  for (const Hop& hop : hops_) {
    Message& m = created[hop.message];
    m = {hop.from, hop.to, 0, m.count + 1, m.bytes + hop.bytes};
  }
  std::vector<std::uint32_t> order(created.size());
  std::iota(order.begin(), order.end(), 0u);
  const int ranks = plan_.ranks();
  // In each round each rank sends to another one.
  std::ranges::sort(order, {}, [&](std::uint32_t m) {
    const auto [from, to] = std::pair(created[m].from, created[m].to);
    return std::tuple(keys_[m], (to - from + ranks) % ranks, from, m);
  });
  std::uint64_t begin = 0;
  for (const std::uint32_t m : order) {
    created[m].begin = begin;
    begin += created[m].count;
    plan_.messages.push_back(created[m]);
    if (created[m].from != created[m].to) {
      plan_.most_bytes = std::max(plan_.most_bytes, created[m].bytes);
    }
  }
  // Moves into the order of the messages, in place: there may be millions.
  std::vector<std::uint32_t> place;
  for (const Hop& hop : hops_) {
    place.push_back(static_cast<std::uint32_t>(created[hop.message].begin++));
  }
  for (std::uint32_t i = 0; i < place.size(); ++i) {
    while (place[i] != i) {
      const std::uint32_t goal = place[i];
      std::swap(plan_.moves[i], plan_.moves[goal]);
      std::swap(place[i], place[goal]);
    }
  }
}

}  // namespace tutti::parallel::reshard
