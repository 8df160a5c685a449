#include "transport/other_hosts.h"

#include <fmt/format.h>

#include <exception>

#include "core/as_error.h"
#include "core/log.h"

namespace tutti {

OtherHosts::OtherHosts(Network& network, HostTree& tree, ControlBlocks& blocks, HostLosses losses,
                       Diagnostics& diagnostics, PeerEvents& events)
    : network_(network),
      tree_(tree),
      blocks_(blocks),
      losses_(losses),
      diagnostics_(diagnostics),
      events_(events),
      joining_(tree, blocks) {}

OtherHosts::~OtherHosts() {
  try {
    leave();
  } catch (const std::exception& e) {
    log().warn("rank {} cannot tell the other hosts that it leaves: {}", tree_.members().rank(),
               as_error(e).what());
  }
}

void OtherHosts::leave() {
  const auto failure = blocks_.failure();
  const bool lost = failure && failure->code == ErrorCode::peer_lost && failure->rank >= 0 &&
                    joining_.state() == Joining::kFailed;
  // Those who are about to hear that this rank has left hear why; the way along the tree may take
  // longer. And first that all had joined. (A host that this one has parted with sees it the other
  // way round.)
  if (failure && joining_.is_decided()) {
    const auto bytes = to_bytes(*failure);
    for (int r = 0; r < tree_.ranks(); ++r) {
      if (tree_.is_here(r) || why_lost(r)) continue;
      joining_.tell_connected(r);
      tree_.tell_connected(r, kFailure, bytes);
    }
  }
  // A rank that has yet to hear that all have joined may ask this one alone, as the one that has
  // decided so may be dead.
  std::optional<Network::Note> decision;
  if (joining_.is_done()) {
    decision = joining_.decision();
  } else {
    network_.refuse(tree_.communicator(), lost ? tree_.member(failure->rank) : -1);
  }
  network_.leave(tree_.communicator(), failure.has_value(), std::move(decision));
}

// --- Failures ------------------------------------------------------------------------------------

void OtherHosts::spread(const Failure& failure, int except) {
  const auto bytes = to_bytes(failure);
  for (const int h : tree_.neighbours()) {
    if (h == except) continue;
    joining_.tell_decision(h);  // it may not have heard yet that there was a time before
    tree_.tell(h, kFailure, bytes);
  }
}

void OtherHosts::on_gone(int member, Departure how, const std::string& why) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  if (how == Departure::left) {
    if (!joining_.is_decided()) return on_refused(member, -1);
    return on_left(member, tree_.communicator());
  }
  // Before it counts as lost, which would say less.
  if (how == Departure::refused) joining_.object(refusal_here(tree_.members(), rank, why));
  lose(rank, how, why);
  // Also where another rank of this host knew before: it may have died before it could say so.
  events_.on_gone(rank, how, why);
}

void OtherHosts::lose(int rank, Departure how, const std::string& why) {
  const auto ranks =
      how == Departure::cut_off ? tree_.ranks_on(tree_.of(rank)) : std::span<const int>(&rank, 1);
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    for (const int r : ranks) {
      const std::string its =
          r == rank ? why : fmt::format("is on the host of rank {}, which {}", rank, why);
      losses_.add(r);
      news |= lost_.try_emplace(r, its).second;
    }
  }
  if (!news) return;
  for (const int r : ranks) {
    diagnostics_.expect_no_answer(r);
    tree_.mark_gone(r);
  }
  // The hosts that it would have told have other neighbours now.
  if (!tree_.is_gone(tree_.of(rank))) return;
  for (const int h : tree_.neighbours()) joining_.tell_decision(h);
  if (const auto failure = blocks_.failure()) spread(*failure, -1);
}

void OtherHosts::on_left(int member, std::uint64_t) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  blocks_.of(rank).state.fetch_or(kLeft, std::memory_order_release);
  // It knew the decision, or why it has not joined, and answers with that; then it has left again.
  if (!joining_.is_decided() && !joining_.has_answered(tree_.of(rank))) return joining_.ask(rank);
  tree_.mark_gone(rank);
  events_.on_left(rank, tree_.communicator());
}

void OtherHosts::on_refused(int member, int because_of) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  blocks_.of(rank).state.fetch_or(kLeft, std::memory_order_release);
  if (!joining_.is_decided()) {
    joining_.object({ErrorCode::peer_lost, because_of >= 0 ? tree_.rank_of(because_of) : rank,
                     because_of >= 0
                         ? fmt::format("{} is gone, so rank {} has not joined the communicator",
                                       tree_.member_text(because_of), rank)
                         : fmt::format("rank {} has given up before all ranks had joined the "
                                       "communicator",
                                       rank)});
  }
  tree_.mark_gone(rank);
  events_.on_left(rank, tree_.communicator());
}

std::optional<std::string> OtherHosts::why_lost(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = lost_.find(rank);
  if (found == lost_.end()) return std::nullopt;
  return found->second;
}

std::vector<int> OtherHosts::lost() {
  const std::vector<int> ranks = losses_.ranks();
  for (const int r : ranks) {
    if (!why_lost(r)) lose(r, Departure::died, "is lost to another rank of this host");
  }
  return ranks;
}

void OtherHosts::on_failure(int rank, const Failure& failure) {
  // This host has parted with lost ranks; they see it the other way round.
  if (failure.cut_off && why_lost(rank)) return;
  if (failure.cut_off && failure.rank >= 0) {
    if (tree_.is_here(failure.rank)) {
      // A rank that has lost a rank of this host goes on without this host.
      const std::string why =
          fmt::format("has lost rank {} of this host ({})", failure.rank, failure.text);
      lose(rank, Departure::cut_off, why);
      events_.on_gone(rank, Departure::cut_off, why);
    } else {
      lose(failure.rank, Departure::cut_off, fmt::format("is lost to rank {}", rank));
    }
  }
  if (blocks_.record(failure)) spread(failure, tree_.of(rank));
}

void OtherHosts::on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  if (joining_.on_note(rank, type, bytes) || diagnostics_.on_note(rank, type, bytes)) return;
  if (type != kFailure) return;
  if (const auto failure = failure_from(bytes, tree_.ranks())) on_failure(rank, *failure);
}

}  // namespace tutti
