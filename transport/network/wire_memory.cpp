// See wire.h: memory outside of rings that the network reads and writes. What a call lends it has
// to come back, so some functions here wait, for transfers that are under way.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "transport/network/wire.h"

namespace tutti {
namespace {

// A peer that says nothing for so long while this rank wants its memory back is given up.
constexpr auto kMemoryBack = std::chrono::seconds(2);
// After so long, a thread that waits for it leaves the core, and the wire's lock, to others.
constexpr auto kYields = std::chrono::milliseconds(1);
constexpr auto kNap = std::chrono::microseconds(100);

}  // namespace

template <class Done>
void Wire::wait_until(Done&& done) {
  const auto begun = std::chrono::steady_clock::now(), end = begun + kMemoryBack;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        if (done()) return;
        if (std::chrono::steady_clock::now() > end) {
          close_with("it does not let go of this rank's memory");
          endpoint_->drain(true);
        }
      }
      if (closed_) return endpoint_->drain(false);
    }
    drive(true);
    if (std::chrono::steady_clock::now() - begun < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void Wire::take_back(OutLink& link, const std::byte* begin, const std::byte* end) {
  wait_until([&] {
    link.copy_unpassed(begin, end);
    if (abilities().cancels) {
      endpoint_->take_back(begin, end);
      return true;
    }
    return std::ranges::none_of(direct_, [&](const DirectSend& d) {
      return d.link == &link && d.from < end && begin < d.from + d.bytes;
    });
  });
}

void Wire::post(InLink& link, std::span<const InLink::PostedReceive> messages) {
  const std::lock_guard lock(mutex_);
  link.set_posted(messages);
  if (closed_ || !abilities().one_sided || link.number() == 0) return;
  Control* control = nullptr;
  std::size_t count = 0;
  for (const InLink::PostedReceive& m : messages) {
    const auto region = endpoint_->window_region(m.to, m.bytes);
    // A message that has come since lies in its slot.
    if (!region || m.number <= link.published()) continue;
    if (control == nullptr || count == Control::kPosts) {
      control = &say(Control::post, link.number());
      control->posts = {};
      count = 0;
    }
    control->posts[count++] = {
        m.number, {reinterpret_cast<std::uintptr_t>(m.to), region->remote_key()}, m.tag, m.bytes};
    link.told_posted_up_to = m.number;
  }
  push();
  if (settle()) owner_.on_moved();
}

void Wire::withdraw_receives(InLink& link) {
  wait_until([&] {
    if (!has_withdrawn(link)) return false;
    link.clear_posted();
    return true;
  });
}

bool Wire::has_withdrawn(InLink& link) {
  if (abilities().one_sided) {
    // The peer writes no more to the places of messages that have come.
    if (link.told_posted_up_to <= link.published()) return true;
    if (!std::exchange(link.withdraws, true)) {
      say(Control::withdraw, link.number());
      push();
    }
    return false;
  }
  // What begins to come from now on goes into its slot.
  link.clear_posted();
  if (abilities().cancels && link.receiving_in_place > 0) {
    link.receiving_in_place = 0;
    endpoint_->redirect(link.number());
  }
  return link.receiving_in_place == 0 || is_over();
}

void Wire::expose(std::uint64_t key, std::byte* memory, std::size_t bytes) {
  if (!abilities().one_sided || bytes == 0) return;
  auto region = endpoint_->expose(key, memory, bytes);  // takes long
  if (!region) return;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  say(Control::expose, 0).exposed = {
      key, bytes, {reinterpret_cast<std::uintptr_t>(memory), region->remote_key(), 0}};
  exposed_[key] = {std::move(region)};
  push();
  if (settle()) owner_.on_moved();
}

void Wire::expose(std::uint64_t communicator, std::uint64_t key, const DeviceMemory& memory,
                  std::shared_ptr<MemoryRegion> region) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  Control& control = say(Control::expose, 0);
  control.communicator = communicator;
  control.exposed = {key, 0, {}};
  if (region) {
    control.exposed.bytes = memory.bytes;
    control.exposed.place = {reinterpret_cast<std::uintptr_t>(memory.data), region->remote_key(),
                             0};
    exposed_[key] = {std::move(region), false, communicator};
  }
  push();
  if (settle()) owner_.on_moved();
}

std::optional<bool> Wire::peer_exposes(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = peer_exposes_.find(key);
  if (found == peer_exposes_.end()) return std::nullopt;
  return found->second.there.bytes > 0;
}

void Wire::begin_to_hide(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = exposed_.find(key);
  if (closed_ || found == exposed_.end() || std::exchange(found->second.hides, true)) return;
  say(Control::hide, 0).exposed = {key, 0, {}};
  push();
  if (settle()) owner_.on_moved();
}

void Wire::hide(std::uint64_t key) {
  begin_to_hide(key);
  {
    const std::lock_guard lock(mutex_);
    if (!exposed_.contains(key)) return;
  }
  wait_until([&] { return !exposed_.contains(key) || is_over(); });
  const std::lock_guard lock(mutex_);
  exposed_.erase(key);  // of a peer that cannot answer any more
}

bool Wire::is_over() {
  if (!peer_ended_.load(std::memory_order_acquire)) return false;
  if (!std::exchange(drained_, true)) endpoint_->drain(false);
  return true;
}

}  // namespace tutti
