// See rendezvous_round.h.
#include "bootstrap/rendezvous_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace tutti {

std::optional<Error> RendezvousRound::join(const wire::Hello& hello, const std::string& from) {
  if (hello.size < 1 || hello.size > wire::kMaxRanks || hello.rank < 0 ||
      hello.rank >= hello.size || hello.patience_ms < 0) {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("rendezvous: rank {} of {} cannot exist (at most {} ranks)",
                             hello.rank, hello.size, wire::kMaxRanks));
  }
  if (failure_) return failure_;
  if (members_.empty()) {
    size_ = hello.size;
    first_rank_ = hello.rank;
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
  members_.emplace(hello.rank, Member{hello.card, from});
  // A day is longer than anybody waits, and keeps the sum in range.
  constexpr std::int64_t kDayMs = 86'400'000;
  deadline_ = std::min(
      deadline_, deadline_after(std::chrono::milliseconds(std::min(hello.patience_ms, kDayMs))));
  return std::nullopt;
}

void RendezvousRound::leave(int rank) {
  if (failure_ || complete() || members_.erase(rank) == 0) return;
  auto absent = missing();
  std::erase(absent, rank);
  failure_ = Error(
      ErrorCode::peer_lost,
      fmt::format("rendezvous: rank {} of {} joined and then left (its process ended, or it gave "
                  "up){}; look at what that rank reports",
                  rank, size_,
                  absent.empty() ? "" : ", while waiting for " + wire::list_ranks(absent)),
      rank);
}

void RendezvousRound::expire() {
  if (failure_ || complete() || members_.empty()) return;
  const auto absent = missing();
  failure_ =
      Error(ErrorCode::timed_out,
            fmt::format("rendezvous: {} of {} did not appear in time (the others did); look at "
                        "whether they were started, and at what they report",
                        wire::list_ranks(absent), size_),
            absent.size() == 1 ? absent.front() : -1);
}

std::vector<std::byte> RendezvousRound::roster(const wire::Bytes32& nonce) const {
  std::vector<std::byte> payload(nonce.size() + members_.size() * sizeof(Card));
  std::memcpy(payload.data(), nonce.data(), nonce.size());
  for (const auto& [rank, member] : members_) {
    std::memcpy(payload.data() + nonce.size() + static_cast<std::size_t>(rank) * sizeof(Card),
                member.card.bytes.data(), sizeof(Card));
  }
  return payload;
}

std::vector<int> RendezvousRound::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!members_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace tutti
