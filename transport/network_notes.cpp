// The notes that communicators send to each other over a Network (network.h), and the news of ranks
// that have left them or are lost. A note may come before its communicator is there, and is kept;
// or after it is over, and is answered.
#include <algorithm>
#include <cstring>

#include "transport/network.h"

namespace tutti {
namespace {

constexpr std::size_t kMostKept = 4096;  // notes for one communicator that is not there yet
constexpr std::size_t kMostOver = 4096;  // communicators that are over, and still asked for
// Notes of its own:
constexpr std::uint32_t kLeftNote = 0;  // the answer to a note for a communicator that is over

}  // namespace

void Network::join(std::uint64_t communicator, Listener& listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_[communicator] = &listener;
  over_.erase(communicator);
  if (const auto early = early_.extract(communicator)) {
    for (const Kept& k : early.mapped()) {
      if (k.type == kLeftNote) {
        listener.on_left(k.member, communicator, k.because_of);
      } else {
        listener.on_note(k.member, k.type, k.bytes);
      }
    }
  }
  for (const auto& [member, end] : gone_) listener.on_gone(member, end.how, end.why);
}

std::vector<int> Network::gone() {
  const std::lock_guard lock(listeners_mutex_);
  std::vector<int> members;
  for (const auto& [member, end] : gone_) members.push_back(member);
  return members;
}

bool Network::has_hung_up(int member) {
  if (std::ranges::count(gone(), member) > 0) return true;
  const auto rank = find(member);
  return rank != nullptr && rank->has_hung_up();
}

void Network::leave(std::uint64_t communicator, bool failed, int because_of) {
  const Listener* listener = nullptr;
  {
    const std::lock_guard lock(listeners_mutex_);
    last_failed_ = failed;
    if (const auto found = listeners_.extract(communicator)) listener = found.mapped();
    early_.erase(communicator);
    note_over(communicator, because_of);
  }
  if (listener == nullptr) return;
  std::vector<std::shared_ptr<RemoteRank>> ranks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [member, r] : ranks_) {
      if (listener->has(member)) ranks.push_back(r);
    }
  }
  for (const auto& r : ranks) r->wire().close(communicator);
}

void Network::note_over(std::uint64_t communicator, int because_of) {
  if (!over_.try_emplace(communicator, because_of).second) return;
  over_in_order_.push_back(communicator);
  if (over_in_order_.size() <= kMostOver) return;
  over_.erase(over_in_order_.front());
  over_in_order_.pop_front();
}

void Network::refuse(std::uint64_t communicator, int because_of) {
  std::set<int> who;
  {
    const std::lock_guard lock(listeners_mutex_);
    if (const auto early = early_.extract(communicator)) {
      for (const Kept& k : early.mapped()) who.insert(k.member);
    }
    note_over(communicator, because_of);
  }
  for (const int member : who) say_left(member, communicator, because_of);
}

void Network::say_left(int member, std::uint64_t communicator, int because_of) {
  const std::uint64_t gone = identity_of(because_of);
  std::shared_ptr<RemoteRank> r;
  {
    const std::lock_guard lock(mutex_);
    r = find_or_make(member);
  }
  if (r == nullptr) return;
  r->connect();
  // By the way of the data, after what this rank had sent: a note would overtake it. A rank with a
  // reason has sent nothing, as it has not joined.
  if (because_of < 0) return r->wire().say_left(communicator);
  r->tell(communicator, kLeftNote, protocol::bytes_of(gone));
}

void Network::tell(int member, std::uint64_t communicator, std::uint32_t type,
                   std::span<const std::byte> bytes) {
  remote(member).tell(communicator, type, bytes);
}

void Network::tell_connected(int member, std::uint64_t communicator, std::uint32_t type,
                             std::span<const std::byte> bytes) {
  const auto r = find(member);
  if (r != nullptr && r->is_up()) r->tell(communicator, type, bytes);
}

void Network::on_note(int member, std::uint64_t communicator, std::uint32_t type,
                      std::span<const std::byte> bytes) {
  if (type == kLeftNote) {
    std::uint64_t gone = 0;
    if (bytes.size() == sizeof gone) std::memcpy(&gone, bytes.data(), bytes.size());
    int because_of = -1;
    {
      const std::lock_guard lock(mutex_);
      because_of = number_of(gone);
    }
    return on_left(member, communicator, because_of);
  }
  if (type == kDialNote) return take_request(member, bytes);
  std::unique_lock lock(listeners_mutex_);
  if (const auto found = listeners_.find(communicator); found != listeners_.end()) {
    return found->second->on_note(member, type, bytes);
  }
  if (const auto over = over_.find(communicator); over != over_.end()) {
    const int because_of = over->second;
    lock.unlock();
    return say_left(member, communicator, because_of);
  }
  auto& early = early_[communicator];
  if (early.size() < kMostKept) early.push_back({member, type, -1, {bytes.begin(), bytes.end()}});
}

void Network::on_left(int member, std::uint64_t communicator, int because_of) {
  {
    const std::lock_guard lock(listeners_mutex_);
    if (const auto found = listeners_.find(communicator); found != listeners_.end()) {
      return found->second->on_left(member, communicator, because_of);
    }
    if (!over_.contains(communicator)) {
      early_[communicator].push_back({member, kLeftNote, because_of, {}});
      return;
    }
  }
  if (const auto r = find(member)) r->wire().forget_left(communicator);
}

void Network::on_gone(int member, Departure how, const std::string& why) {
  const std::lock_guard lock(listeners_mutex_);
  gone_[member] = {how, why};
  for (const auto& [communicator, listener] : listeners_) listener->on_gone(member, how, why);
}

}  // namespace tutti
