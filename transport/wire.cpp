#include "transport/wire.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/error.h"

namespace tutti {
namespace {

// The most that an honest peer can have (core/settings.cpp says the same of its settings).
constexpr std::uint64_t kMostSlots = 4096;
constexpr std::uint64_t kMostSlotBytes = std::uint64_t{1} << 30;

// A peer that says nothing for so long while this rank wants its memory back is given up.
constexpr auto kMemoryBack = std::chrono::seconds(2);
// After so long, who waits for it leaves the core, and the wire's lock, to others.
constexpr auto kYields = std::chrono::milliseconds(1);
constexpr auto kNap = std::chrono::microseconds(100);

bool same_shape(const ConnectionShape& a, const ConnectionShape& b) {
  return a.slots == b.slots && a.slot_bytes == b.slot_bytes && a.most_full == b.most_full;
}

}  // namespace

OutLink& Wire::out(const LinkName& name, const ConnectionShape& shape, Doorbell& owner) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<OutLink>& link = outs_[name];
  if (!link) {
    link = std::make_unique<OutLink>(*this, ++last_number_, shape, owner);
    outs_by_number_[link->number()] = link.get();
    announce(*link, {name, shape.slots, shape.slot_bytes, shape.most_full});
  }
  return *link;
}

InLink& Wire::in(const LinkName& name, const ConnectionShape& shape, Doorbell& owner) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<InLink>& link = ins_[name];
  if (!link) link = std::make_unique<InLink>(*this, shape);
  if (!same_shape(link->shape(), shape)) {
    throw Error(
        ErrorCode::mismatch,
        "a rank on another host has links of another shape (TUTTI_SLOTS, TUTTI_SLOT_BYTES)");
  }
  link->belongs_to(owner);
  return *link;
}

bool Wire::opened(std::uint32_t number, const Opening& o) {
  if (number == 0 || ins_by_number_.contains(number) || o.slots < 2 || o.slots > kMostSlots ||
      o.slot_bytes < kCacheLine || o.slot_bytes > kMostSlotBytes ||
      o.slot_bytes % kCacheLine != 0 || o.most_full > o.slots) {
    return false;
  }
  if (left_.contains(o.name.group)) {
    ins_by_number_[number] = nullptr;
    return true;
  }
  const ConnectionShape shape{o.slots, o.slot_bytes, o.most_full};
  std::unique_ptr<InLink>& link = ins_[o.name];
  // The peer may be ahead of this rank, which asks for it later.
  if (!link) link = std::make_unique<InLink>(*this, shape);
  if (link->number() != 0 || !same_shape(link->shape(), shape)) return false;
  link->opened_as(number);
  ins_by_number_[number] = link.get();
  return true;
}

Wire::Found Wire::find_in(std::uint32_t number) const {
  const auto found = ins_by_number_.find(number);
  return found == ins_by_number_.end() ? Found{} : Found{true, found->second};
}

OutLink* Wire::find_out(std::uint32_t number) const {
  const auto found = outs_by_number_.find(number);
  return found == outs_by_number_.end() ? nullptr : found->second;
}

void Wire::close(std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  left_.insert(group);
  say_left(group);
  if (!closed_) push();
  for (auto it = outs_.begin(); it != outs_.end();) {
    if (it->first.group != group) {
      ++it;
      continue;
    }
    std::erase(sending_, it->second.get());
    drop(*it->second);
    outs_by_number_.erase(it->second->number());
    it = outs_.erase(it);
  }
  for (auto it = ins_.begin(); it != ins_.end();) {
    if (it->first.group != group) {
      ++it;
      continue;
    }
    std::erase(owing_, it->second.get());
    drop(*it->second);
    if (it->second->number() != 0) ins_by_number_[it->second->number()] = nullptr;
    it = ins_.erase(it);
  }
  if (settle()) owner_.on_moved();
}

void Wire::send(OutLink& link) {
  const std::lock_guard lock(mutex_);
  if (!link.listed) sending_.push_back(&link);
  link.listed = true;
  if (!closed_) push();
  if (settle()) owner_.on_moved();
}

bool Wire::settle() {
  const bool unsent = !closed_ && (!sending_.empty() || has_unsent());
  if (std::exchange(unsent_, unsent) && !unsent) moved_ = true;
  const bool restless = unsent || (!closed_ && !owing_.empty());
  if (restless_.load(std::memory_order_relaxed) != restless) {
    restless_.store(restless, std::memory_order_release);
  }
  return std::exchange(moved_, false);
}

template <class Done>
void Wire::wait_until(Done&& done) {
  const auto begun = std::chrono::steady_clock::now(), end = begun + kMemoryBack;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        if (done()) return;
        if (std::chrono::steady_clock::now() > end) {
          give_up("it does not let go of this rank's memory");
        }
      }
      if (closed_) return let_go();
    }
    drive(true);
    if (std::chrono::steady_clock::now() - begun < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void Wire::keep(OutLink& link, const std::byte* begin, const std::byte* end) {
  wait_until([&] {
    link.keep_unpassed(begin, end);
    return keep_passed(link, begin, end);
  });
}

void Wire::expect(InLink& link, std::span<const InLink::Expected> messages) {
  const std::lock_guard lock(mutex_);
  link.set_expected(messages);
  if (closed_) return;
  tell_expected(link, messages);
}

void Wire::forget_expected(InLink& link) {
  wait_until([&] {
    if (!stop_landing(link)) return false;
    link.clear_expected();
    return true;
  });
}

void Wire::credit(InLink& link) {
  const std::lock_guard lock(mutex_);
  if (!link.listed) owing_.push_back(&link);
  link.listed = true;
  if (link.owes_much() && !closed_) push();
  if (settle()) owner_.on_moved();
}

void Wire::note_poll() {
  polled_.store(true, std::memory_order_relaxed);
  if (listening_.load(std::memory_order_relaxed) && listening_.exchange(false)) owner_.on_polled();
}

void Wire::drive(bool tells) {
  std::vector<std::uint64_t> left;
  bool moved = false;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || closed_) return;
    take();
    if (!closed_ && (!sending_.empty() || has_unsent() || (tells && !owing_.empty()))) push();
    left.swap(peer_left_);
    moved = settle();
  }
  if (moved) owner_.on_moved();
  for (const std::uint64_t group : left) owner_.on_left(group);
}

void Wire::poll() {
  note_poll();
  drive(false);
}

void Wire::poll_and_tell() {
  note_poll();
  drive(true);
}

void Wire::drive() { drive(true); }

void Wire::tend() {
  bool moved = false;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || closed_) return;
    if (!sending_.empty() || !owing_.empty() || has_unsent()) push();
    moved = settle();
  }
  if (moved) owner_.on_moved();
}

bool Wire::is_flushed() {
  const std::lock_guard lock(mutex_);
  return closed_ || (sending_.empty() && !has_unsent() && has_gone());
}

}  // namespace tutti
