// See rendezvous_round.h.
#include "bootstrap/rendezvous_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bootstrap/rendezvous_tree.h"

namespace tutti {

std::optional<Error> RendezvousRound::join(const protocol::Hello& hello,
                                           std::span<const std::byte> card,
                                           const std::string& from) {
  if (hello.size < 1 || hello.size > protocol::kMaxRanks || hello.rank < 0 ||
      hello.rank >= hello.size || hello.patience_ms < 0) {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("rendezvous: rank {} of {} cannot exist (at most {} ranks)",
                             hello.rank, hello.size, protocol::kMaxRanks));
  }
  if (card.size() > kMaxCardBytes ||
      (tree::has_children(hello.rank, hello.size) && !protocol::address_of(hello.listens))) {
    return Error(ErrorCode::internal,
                 fmt::format("rendezvous: rank {} of {} sent a card of {} bytes, or no address",
                             hello.rank, hello.size, card.size()),
                 hello.rank);
  }
  if (failure_) return failure_;
  if (members_.empty()) {
    size_ = hello.size;
    first_rank_ = hello.rank;
    about_ = hello.about;
  }
  if (hello.about != about_) {
    failure_ = Error(ErrorCode::mismatch,
                     fmt::format("ranks {} and {} were called with the number {} and different "
                                 "lists of handles: all ranks pass the same list, in the same "
                                 "order",
                                 first_rank_, hello.rank, about_.number),
                     hello.rank);
    return std::nullopt;
  }
  if (hello.size != size_) {
    failure_ = Error(ErrorCode::mismatch,
                     fmt::format("rendezvous: rank {} says that there are {} ranks, but rank {} "
                                 "says {}; start all ranks with the same size",
                                 hello.rank, hello.size, first_rank_, size_),
                     hello.rank);
    return std::nullopt;
  }
  const auto same = members_.find(hello.rank);
  if (same != members_.end()) {
    failure_ = Error(ErrorCode::mismatch,
                     fmt::format("rendezvous: two claim to be rank {} of {}: one from {}, one from "
                                 "{}; give every process or thread a rank of its own",
                                 hello.rank, size_, same->second.from, from),
                     hello.rank);
    return std::nullopt;
  }
  members_.emplace(hello.rank, Member{{card.begin(), card.end()}, hello.listens, from});
  // A day is longer than anybody waits, and keeps the sum in range.
  constexpr std::int64_t kDayMs = 86'400'000;
  deadline_ = std::min(
      deadline_, deadline_after(std::chrono::milliseconds(std::min(hello.patience_ms, kDayMs))));
  if (members_.size() == static_cast<std::size_t>(size_)) phase_ = Phase::passing;
  return std::nullopt;
}

void RendezvousRound::have(int rank) {
  bool& has = members_.at(rank).has_roster;
  have_ += !has;
  has = true;
  if (!failure_ && have_ == size_) phase_ = Phase::met;
}

void RendezvousRound::fail(const Error& why) {
  if (!over()) failure_ = why;
}

void RendezvousRound::leave(int rank) {
  if (over()) return;
  std::string meanwhile = " while the ranks' cards were passed round";
  if (phase_ == Phase::joining) {
    auto absent = missing();
    meanwhile = absent.empty() ? "" : ", while waiting for " + protocol::list_ranks(absent);
  }
  members_.erase(rank);
  failure_ = Error(
      ErrorCode::peer_lost,
      fmt::format("rendezvous: rank {} of {} joined and then left (its process ended, or it gave "
                  "up){}; look at what that rank reports",
                  rank, size_, meanwhile),
      rank);
}

void RendezvousRound::expire(std::string_view trouble) {
  if (over() || members_.empty()) return;
  const bool joining = phase_ == Phase::joining;
  const auto late = joining ? missing() : holding_up();
  failure_ = Error(
      ErrorCode::timed_out,
      fmt::format("rendezvous: {} of {} did not {}{}{}; look at whether they {}, and at what they "
                  "report",
                  protocol::list_ranks(late), size_,
                  joining ? "appear in time (the others did)"
                          : "take the ranks' cards, or pass them on, in time",
                  trouble.empty() ? "" : ": ", trouble,
                  joining ? "were started" : "are stopped or cut off"),
      late.size() == 1 ? late.front() : -1);
}

std::vector<std::byte> RendezvousRound::roster() const {
  std::vector<std::vector<std::byte>> cards(members_.size());
  for (const auto& [rank, member] : members_) cards[static_cast<std::size_t>(rank)] = member.card;
  return protocol::roster_bytes(cards);
}

std::vector<int> RendezvousRound::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!members_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> RendezvousRound::holding_up() const {
  std::vector<int> ranks;
  for (int parent = tree::kServer; parent < size_; ++parent) {
    if (parent != tree::kServer && !members_.at(parent).has_roster) continue;
    std::vector<int> late;
    const int first = tree::first_child(parent, size_);
    const int end = tree::end_child(parent, size_);
    for (int rank = first; rank < end; ++rank) {
      if (!members_.at(rank).has_roster) late.push_back(rank);
    }
    const bool all = !late.empty() && late.size() == static_cast<std::size_t>(end - first);
    if (all && parent != tree::kServer) ranks.push_back(parent);
    if (!all || parent == tree::kServer || late.size() == 1) {
      ranks.insert(ranks.end(), late.begin(), late.end());
    }
  }
  return ranks;
}

}  // namespace tutti
