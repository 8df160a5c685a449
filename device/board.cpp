#include "device/board.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// Of DeviceCard::state.
constexpr std::uint32_t kShown = 1;      // the card is there
constexpr std::uint32_t kWithdrawn = 2;  // and must not be followed any more
constexpr std::uint32_t kMaps = 4;       // the rank's process may have others' memory mapped

}  // namespace

DeviceBoard::DeviceBoard(RankGroup& group) : host_peers_(group.shared_host_peers()) {
  for (int r = 0; r < group.size(); ++r) {
    memory_.push_back(group.blocks().segment());
    DeviceCard* const card = group.same_host(r) ? &device_card(group.control(r)) : nullptr;
    ranks_.push_back({card, group.member(r), group.same_process(r)});
  }
}

void DeviceBoard::publish(int rank, const Card& card) {
  DeviceCard& c = *ranks_[static_cast<std::size_t>(rank)].card;
  if ((c.state.load(std::memory_order_relaxed) & kWithdrawn) != 0) {
    throw Error(ErrorCode::invalid_usage,
                "the ranks of this process that used GPU memory have destroyed this communicator, "
                "and with it the memory of all: use it on all of them before one leaves");
  }
  c.gpu = card.gpu;
  c.most_blocks = card.most_blocks;
  c.carrier = card.carrier;
  c.segment = card.segment;
  // release: a reader that sees the bit sees the rest.
  c.state.fetch_or(kShown, std::memory_order_release);
}

std::optional<DeviceBoard::Card> DeviceBoard::card(int rank) const {
  const DeviceCard& c = *ranks_[static_cast<std::size_t>(rank)].card;
  if ((c.state.load(std::memory_order_seq_cst) & (kShown | kWithdrawn)) != kShown) return {};
  const Card card{c.gpu, c.most_blocks, c.carrier, c.segment};
  if (card.carrier < 0 || card.carrier >= size() || !is_here(card.carrier) ||
      is_local(card.carrier)) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} says that rank {} passes its GPU memory", rank, card.carrier),
                rank);
  }
  return card;
}

bool DeviceBoard::is_gone(int rank) const {
  const DeviceCard& c = *ranks_[static_cast<std::size_t>(rank)].card;
  return (c.state.load(std::memory_order_relaxed) & kWithdrawn) != 0;
}

void DeviceBoard::withdraw() {
  for (const Rank& r : ranks_) {
    if (r.local) r.card->state.fetch_or(kWithdrawn, std::memory_order_seq_cst);
  }
}

void DeviceBoard::set_maps(bool maps) {
  for (const Rank& r : ranks_) {
    if (!r.local) continue;
    if (maps) {
      r.card->state.fetch_or(kMaps, std::memory_order_seq_cst);
    } else {
      // release: the mappings are gone before.
      r.card->state.fetch_and(~kMaps, std::memory_order_release);
    }
  }
}

bool DeviceBoard::is_mapped() const {
  const std::vector<int> dead = host_peers_->dead_peers();
  return std::ranges::any_of(ranks_, [&](const Rank& r) {
    return r.card != nullptr && !r.local &&
           (r.card->state.load(std::memory_order_seq_cst) & kMaps) != 0 &&
           std::ranges::find(dead, r.member) == dead.end();
  });
}

}  // namespace tutti
