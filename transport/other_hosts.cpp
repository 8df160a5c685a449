#include "transport/other_hosts.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "core/background.h"
#include "transport/control_copy.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kBelow = 4;  // hosts below one in the tree
constexpr auto kAskAgain = 50ms;

struct FailureHead {
  std::uint32_t code = 0;
  std::int32_t rank = -1;
};

std::span<const std::byte> flag_bytes(const std::uint64_t& flag) {
  return std::as_bytes(std::span(&flag, 1));
}

}  // namespace

OtherHosts::OtherHosts(Network& network, std::uint64_t group, Ranks ranks, Callbacks callbacks)
    : network_(network), group_(group), ranks_(std::move(ranks)), callbacks_(std::move(callbacks)) {
  std::map<int, int> numbers;
  for (std::size_t r = 0; r < ranks_.hosts.size(); ++r) {
    const auto [number, fresh] =
        numbers.try_emplace(ranks_.hosts[r], static_cast<int>(firsts_.size()));
    if (fresh) {
      firsts_.push_back(static_cast<int>(r));
      on_host_.emplace_back();
    }
    ranks_.hosts[r] = number->second;
    on_host_[static_cast<std::size_t>(number->second)].push_back(static_cast<int>(r));
    by_member_[ranks_.members[r]] = static_cast<int>(r);
  }
  own_host_ = host_of(ranks_.self);
  copies_ = std::make_unique<RingMemory>(ranks_.members.size() * sizeof(ControlBlock));
}

OtherHosts::~OtherHosts() { network_.leave(group_, callbacks_.failed()); }

ControlBlock& OtherHosts::copy(int rank) {
  // Zeros are a ControlBlock that has said nothing.
  return reinterpret_cast<ControlBlock*>(copies_->data())[rank];
}

int OtherHosts::rank_of(int member) const {
  const auto found = by_member_.find(member);
  return found == by_member_.end() ? -1 : found->second;
}

std::vector<int> OtherHosts::neighbours() const {
  std::vector<int> all;
  if (own_host_ > 0) all.push_back((own_host_ - 1) / kBelow);
  for (int h = kBelow * own_host_ + 1; h <= kBelow * own_host_ + kBelow && h < hosts(); ++h) {
    all.push_back(h);
  }
  return all;
}

void OtherHosts::tell_host(int host, Type type, std::span<const std::byte> bytes) {
  int to = -1;
  {
    const std::lock_guard lock(mutex_);
    for (const int r : on_host_[static_cast<std::size_t>(host)]) {
      const bool left = (copy(r).state.load(std::memory_order_acquire) & kLeft) != 0;
      if (left || lost_.contains(r)) continue;
      to = r;
      break;
    }
  }
  if (to >= 0) {
    network_.tell(ranks_.members[static_cast<std::size_t>(to)], group_, type, bytes);
  }
}

// --- All have joined -----------------------------------------------------------------------------

void OtherHosts::say_ready(bool cma_works) {
  {
    const std::lock_guard lock(mutex_);
    ready_here_ = true;
    cma_works_ = cma_works_ && cma_works;
  }
  check_ready();
}

void OtherHosts::check_ready() {
  const std::vector<int> around = neighbours();
  const std::size_t below = around.size() - (own_host_ > 0 ? 1 : 0);
  std::uint64_t works = 0;
  bool all = false;
  {
    const std::lock_guard lock(mutex_);
    if (said_ready_ || !ready_here_ || ready_below_ < below) return;
    said_ready_ = true;
    works = cma_works_ ? 1 : 0;
    all = own_host_ == 0;
    if (all) all_ready_ = cma_works_;
  }
  for (const int h : around) {
    if (all != (h < own_host_)) tell_host(h, all ? kAllReady : kReady, flag_bytes(works));
  }
}

std::optional<bool> OtherHosts::all_ready() const {
  const std::lock_guard lock(mutex_);
  return all_ready_;
}

// --- Failures ------------------------------------------------------------------------------------

void OtherHosts::spread(const Failure& failure, int except) {
  const FailureHead head{static_cast<std::uint32_t>(failure.code), failure.rank};
  std::vector<std::byte> bytes(sizeof head + failure.text.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, failure.text.data(), failure.text.size());
  for (const int h : neighbours()) {
    if (h != except) tell_host(h, kFailure, bytes);
  }
}

void OtherHosts::on_lost(int member, const std::string& why) {
  const int rank = rank_of(member);
  if (rank < 0 || rank == ranks_.self) return;
  if (why.empty()) return on_left(member);
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.try_emplace(rank, why).second) return;
  }
  callbacks_.lost(rank, why);
}

void OtherHosts::on_left(int member) {
  const int rank = rank_of(member);
  if (rank < 0 || is_here(rank)) return;
  copy(rank).state.fetch_or(kLeft, std::memory_order_release);
  callbacks_.ring_all();
}

std::optional<std::string> OtherHosts::why_lost(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = lost_.find(rank);
  if (found == lost_.end()) return std::nullopt;
  return found->second;
}

std::vector<int> OtherHosts::lost() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (const auto& [rank, why] : lost_) ranks.push_back(rank);
  return ranks;
}

// --- What the others do --------------------------------------------------------------------------

void OtherHosts::ask(int rank) {
  if (is_here(rank)) return;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.contains(rank)) return;
    Asked& asked = asked_[rank];
    const auto now = Clock::now();
    if (now - asked.last < kAskAgain) return;
    asked.last = now;
  }
  network_.tell(ranks_.members[static_cast<std::size_t>(rank)], group_, kAsk, {});
}

bool OtherHosts::refresh(int rank, Deadline deadline) {
  if (is_here(rank)) return true;
  const auto answers = [&] {
    const std::lock_guard lock(mutex_);
    return asked_[rank].answers;
  };
  const std::uint64_t before = answers();
  network_.tell(ranks_.members[static_cast<std::size_t>(rank)], group_, kAsk, {});
  while (answers() == before) {
    if (Clock::now() >= deadline || why_lost(rank)) return false;
    pause_for(100us);
  }
  return true;
}

void OtherHosts::on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) {
  const int rank = rank_of(member);
  if (rank < 0) return;
  const auto flag = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    if (bytes.size() != sizeof value) return std::nullopt;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  switch (type) {
    case kReady: {
      const auto works = flag();
      if (!works) return;
      {
        const std::lock_guard lock(mutex_);
        ++ready_below_;
        cma_works_ = cma_works_ && *works != 0;
      }
      return check_ready();
    }
    case kAllReady: {
      const auto works = flag();
      if (!works) return;
      {
        const std::lock_guard lock(mutex_);
        if (all_ready_) return;
        all_ready_ = *works != 0;
      }
      for (const int h : neighbours()) {
        if (h > own_host_) tell_host(h, kAllReady, bytes);
      }
      return;
    }
    case kFailure: {
      FailureHead head;
      if (bytes.size() < sizeof head) return;
      std::memcpy(&head, bytes.data(), sizeof head);
      const auto text = bytes.subspan(sizeof head);
      const bool known = head.code >= static_cast<std::uint32_t>(ErrorCode::invalid_argument) &&
                         head.code <= static_cast<std::uint32_t>(ErrorCode::internal);
      const int ranks = static_cast<int>(ranks_.members.size());
      const Failure failure{known ? static_cast<ErrorCode>(head.code) : ErrorCode::internal,
                            head.rank >= 0 && head.rank < ranks ? head.rank : -1,
                            {reinterpret_cast<const char*>(text.data()), text.size()}};
      if (callbacks_.record(failure)) spread(failure, host_of(rank));
      return;
    }
    case kAsk: {
      const std::vector<std::byte> status = control_to_bytes(callbacks_.mine());
      return network_.tell(member, group_, kStatus, status);
    }
    case kStatus: {
      if (is_here(rank) || !control_from_bytes(bytes, copy(rank))) return;
      const std::lock_guard lock(mutex_);
      ++asked_[rank].answers;
      return;
    }
    default:
      return;
  }
}

}  // namespace tutti
