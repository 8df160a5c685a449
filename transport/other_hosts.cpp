#include "transport/other_hosts.h"

#include <fmt/format.h>

#include <utility>

#include "core/wait.h"
#include "transport/control_copy.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kAskEvery = 50ms;

}  // namespace

OtherHosts::OtherHosts(Network& network, std::uint64_t group, HostTree::Ranks ranks,
                       std::atomic<std::uint64_t>& joining, HostLosses losses, Callbacks callbacks)
    : network_(network),
      group_(group),
      tree_(network, group, std::move(ranks)),
      losses_(losses),
      callbacks_(std::move(callbacks)),
      joining_(tree_, joining, [this](const Failure& f) { callbacks_.record(f); }),
      copies_(std::make_unique<RingMemory>(static_cast<std::size_t>(tree_.ranks()) *
                                           sizeof(ControlBlock))) {}

OtherHosts::~OtherHosts() {
  const auto failure = callbacks_.failure();
  const bool lost = failure && failure->code == ErrorCode::peer_lost && failure->rank >= 0 &&
                    joining_.state() == Joining::kFailed;
  network_.leave(group_, failure.has_value(), lost ? tree_.member(failure->rank) : -1);
}

ControlBlock& OtherHosts::copy(int rank) {
  // Zeros are a ControlBlock that has said nothing.
  return reinterpret_cast<ControlBlock*>(copies_->data())[rank];
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

void OtherHosts::on_lost(int member, Loss how, const std::string& why) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  if (how == Loss::left) return on_left(member, group_, -1);
  lose(rank, how, why);
  // Also where another rank of this host knew before: it may have died before it could say so.
  callbacks_.lost(rank, how, why);
}

void OtherHosts::lose(int rank, Loss how, const std::string& why) {
  const auto ranks =
      how == Loss::cut_off ? tree_.ranks_on(tree_.of(rank)) : std::span<const int>(&rank, 1);
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
  for (const int r : ranks) tree_.mark_gone(r);
  // Whom it would have told has other neighbours now.
  if (!tree_.is_gone(tree_.of(rank))) return;
  for (const int h : tree_.neighbours()) joining_.tell_decision(h);
  if (const auto failure = callbacks_.failure()) spread(*failure, -1);
}

void OtherHosts::on_left(int member, std::uint64_t, int because_of) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank)) return;
  copy(rank).state.fetch_or(kLeft, std::memory_order_release);
  if (!joining_.is_decided()) {
    if (because_of < 0 && is_first_time(rank)) {
      // It may be for another's sake that it has left, and says so when asked.
      return joining_.ask(rank);
    }
    joining_.object({ErrorCode::peer_lost, because_of >= 0 ? tree_.rank_of(because_of) : rank,
                     because_of >= 0
                         ? fmt::format("rank {} of the job is gone, so rank {} has not joined the "
                                       "communicator",
                                       because_of, rank)
                         : fmt::format("rank {} has given up before all ranks had joined the "
                                       "communicator",
                                       rank)});
  }
  tree_.mark_gone(rank);
  callbacks_.ring_all();
}

bool OtherHosts::is_first_time(int rank) {
  const std::lock_guard lock(mutex_);
  return left_.insert(rank).second;
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
    if (!why_lost(r)) lose(r, Loss::died, "is lost to another rank of this host");
  }
  return ranks;
}

// --- What the others do --------------------------------------------------------------------------

void OtherHosts::ask(int rank) {
  if (tree_.is_here(rank)) return;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.contains(rank)) return;
    Asked& asked = asked_[rank];
    const auto now = Clock::now();
    if (now - asked.last < kAskEvery) return;
    asked.last = now;
  }
  tree_.tell_rank(rank, kAsk, {});
}

void OtherHosts::tell(int rank) {
  if (tree_.is_here(rank)) return;
  const std::vector<std::byte> status = control_to_bytes(callbacks_.mine());
  tree_.tell_rank(rank, kStatus, status);
}

void OtherHosts::refresh(std::span<const int> ranks, Deadline deadline) {
  const auto answers = [&](int rank) {
    const std::lock_guard lock(mutex_);
    return asked_[rank].answers;
  };
  std::vector<std::pair<int, std::uint64_t>> before;
  for (const int r : ranks) {
    if (tree_.is_here(r)) continue;
    before.emplace_back(r, answers(r));
    tree_.tell_rank(r, kAsk, {});
  }
  for (const auto& [rank, count] : before) {
    const auto is_known = [&, r = rank, old = count] { return answers(r) != old || why_lost(r); };
    if (!wait_until(deadline, is_known)) return;
  }
}

void OtherHosts::on_failure(int rank, const Failure& failure) {
  // With those who are lost this host has parted; they see it the other way round.
  if (failure.cut_off && why_lost(rank)) return;
  if (failure.cut_off && failure.rank >= 0) {
    if (tree_.is_here(failure.rank)) {
      // Whoever has lost a rank of this host goes on without this host.
      const std::string why =
          fmt::format("has lost rank {} of this host ({})", failure.rank, failure.text);
      lose(rank, Loss::cut_off, why);
      callbacks_.lost(rank, Loss::cut_off, why);
    } else {
      lose(failure.rank, Loss::cut_off, fmt::format("is lost to rank {}", rank));
    }
  }
  if (callbacks_.record(failure)) spread(failure, tree_.of(rank));
}

void OtherHosts::on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) {
  const int rank = tree_.rank_of(member);
  if (rank < 0 || tree_.is_here(rank) || joining_.on_note(rank, type, bytes)) return;
  switch (type) {
    case kFailure: {
      const auto failure = failure_from(bytes, tree_.ranks());
      if (failure) on_failure(rank, *failure);
      return;
    }
    case kAsk:
      return tell(rank);
    case kStatus: {
      if (!control_from_bytes(bytes, copy(rank))) return;
      const std::lock_guard lock(mutex_);
      ++asked_[rank].answers;
      return;
    }
    default:
      return;
  }
}

}  // namespace tutti
