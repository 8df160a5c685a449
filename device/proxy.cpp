#include "device/proxy.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/background.h"
#include "core/fork.h"
#include "execute/cuda/memory.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long the thread looks without a pause after something has moved: longer than a collective
// lets it wait for the next message. Then it sleeps, the longer the less there is to do.
constexpr auto kLook = 1ms;
constexpr auto kShortestSleep = 50us;
constexpr auto kLongestSleep = 1ms;
// Of a process that exits: a peer may not have taken all of its messages yet.
constexpr auto kGrace = 1800ms;

}  // namespace

// --- A link --------------------------------------------------------------------------------------

ProxyLink::ProxyLink(const device::SegmentShape& shape, std::size_t slot_bytes, Ends ends)
    : shape_(shape),
      slot_bytes_(std::min<std::size_t>(slot_bytes, shape.simple_bytes)),
      rank_(static_cast<std::uint32_t>(ends.rank)),
      peer_(static_cast<std::uint32_t>(ends.peer)),
      near_(ends.near),
      far_(ends.far),
      held_(std::move(ends.links.held)),
      gpu_(std::move(ends.gpu)),
      channels_(shape.channels + shape.message_channels) {
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].out = ends.links.outgoing.at(c);
    channels_[c].in = ends.links.incoming.at(c);
    channels_[c].ahead = *channels_[c].in.link;
  }
  wire_ = remote(*channels_.front().out.doorbell);
}

const std::uint64_t* ProxyLink::sent_header(std::uint32_t channel, std::uint64_t message) const {
  return reinterpret_cast<const std::uint64_t*>(far_ + shape_.connection(rank_, channel) +
                                                shape_.header(slot(message)));
}

std::uint64_t* ProxyLink::credit_of_sent(std::uint32_t channel) const {
  return reinterpret_cast<std::uint64_t*>(near_ + shape_.credit(peer_, channel));
}

bool ProxyLink::advance() {
  if (wire_ != nullptr) wire_->poll();
  bool moved = false;
  for (std::uint32_t c = 0; c < channels_.size(); ++c) {
    while (forward(c)) moved = true;
    while (deliver(c)) moved = true;
    if (gpu_ && give_credit(c)) moved = true;
  }
  return moved;
}

bool ProxyLink::forward(std::uint32_t channel) {
  Channel& c = channels_[channel];
  const std::uint64_t number = c.forwarded + 1;
  // acquire: pairs with the kernel's release, so the data is there.
  const std::uint64_t header = device::load_acquire(sent_header(channel, number));
  if (static_cast<std::uint32_t>(header) != static_cast<std::uint32_t>(number)) return false;
  Sender& sender = *c.out.link;
  if ((gpu_ && !gpu_->is_settled()) || !sender.ready(slot_bytes_)) return false;
  const std::byte* const connection = far_ + shape_.connection(rank_, channel);
  const std::uint64_t bytes = device::load_relaxed(
      reinterpret_cast<const std::uint64_t*>(connection + shape_.length(slot(number))));
  if (bytes > slot_bytes_) {
    throw Error(ErrorCode::internal,
                fmt::format("the GPU of rank {} sends {} bytes to rank {} through a slot of {}",
                            rank_, bytes, peer_, slot_bytes_),
                static_cast<int>(rank_));
  }
  const auto tag = static_cast<std::uint32_t>(header >> 32);
  const std::byte* const data = connection + shape_.simple(slot(number));
  if (gpu_) {
    gpu_->publish(channel, slot(number), data, tag, static_cast<std::uint32_t>(bytes));
  } else {
    if (bytes > 0) std::memcpy(sender.slot(bytes), data, bytes);
    sender.publish(tag, static_cast<std::uint32_t>(bytes));
  }
  ring(*c.out.doorbell);
  c.forwarded = number;
  if (gpu_ && gpu_->sends()) {
    c.awaited[slot(number)] = bytes > 0 ? sender.sent() : c.awaited[slot(number - 1)];
    return true;
  }
  // release: our loads come before the kernel's next stores into the slot.
  device::store_release(credit_of_sent(channel), number);
  return true;
}

bool ProxyLink::give_credit(std::uint32_t channel) {
  Channel& c = channels_[channel];
  bool moved = false;
  if (gpu_->sends()) {
    const std::uint64_t before = c.credited;
    while (c.credited < c.forwarded && gpu_->has_sent(channel, c.awaited[slot(c.credited + 1)])) {
      ++c.credited;
    }
    if (c.credited > before) {
      // release: the network's loads come before the kernel's next stores into the slot.
      device::store_release(credit_of_sent(channel), c.credited);
      moved = true;
    }
  }
  if (gpu_->receives()) {
    Receiver& receiver = *c.in.link;
    const std::uint64_t freed = std::min(freed_by_kernel(channel), c.delivered);
    if (receiver.received() < freed) {
      while (receiver.received() < freed) receiver.free();
      ring(*c.in.doorbell);
      moved = true;
    }
  }
  return moved;
}

std::uint64_t ProxyLink::freed_by_kernel(std::uint32_t channel) const {
  // acquire: our stores into the slot, or those of the network, come after the kernel's loads.
  return device::load_acquire(
      reinterpret_cast<const std::uint64_t*>(far_ + shape_.credit(rank_, channel)));
}

bool ProxyLink::deliver(std::uint32_t channel) {
  Channel& c = channels_[channel];
  const bool in_place = gpu_ && gpu_->receives();
  Receiver& receiver = in_place ? c.ahead : *c.in.link;
  if (!receiver.ready()) return false;
  const std::uint64_t number = c.delivered + 1;
  if (number - freed_by_kernel(channel) > shape_.slots) return false;
  const std::uint32_t bytes = receiver.bytes();  // once: the peer could change it
  if (bytes > slot_bytes_) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} has sent {} bytes to the GPU of rank {} through a slot of {}",
                            peer_, bytes, rank_, slot_bytes_),
                static_cast<int>(peer_));
  }
  std::byte* const connection = near_ + shape_.connection(peer_, channel);
  const std::uint64_t header =
      std::uint64_t{receiver.tag()} << 32 | static_cast<std::uint32_t>(number);
  if (in_place) {
    gpu_->expect(channel, number, bytes);
    receiver.pass();
  } else {
    std::byte* const data = connection + shape_.simple(slot(number));
    if (bytes > 0) std::memcpy(data, receiver.slot(bytes), bytes);
    receiver.free();
    ring(*c.in.doorbell);
  }
  c.delivered = number;
  // release: the data comes before.
  device::store_release(reinterpret_cast<std::uint64_t*>(connection + shape_.header(slot(number))),
                        header);
  return true;
}

bool ProxyLink::is_flushed() const {
  for (std::uint32_t c = 0; c < channels_.size(); ++c) {
    // The credit that the thread gave back counts the messages that it has forwarded. relaxed:
    // nothing is read on its account.
    const std::uint64_t next = device::load_relaxed(credit_of_sent(c)) + 1;
    const std::uint64_t header = device::load_relaxed(sent_header(c, next));
    if (static_cast<std::uint32_t>(header) == static_cast<std::uint32_t>(next)) return false;
  }
  return wire_ == nullptr || wire_->is_flushed();
}

// --- The thread ----------------------------------------------------------------------------------

DeviceProxy::DeviceProxy()
    : generation_(process_generation()), doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!doorbell_) throw_system_error("making an eventfd for the thread of host slots");
}

std::shared_ptr<DeviceProxy> DeviceProxy::start() {
  const std::shared_ptr<DeviceProxy> proxy(new DeviceProxy);
  run_in_background("tutti-proxy", [proxy](int stop_fd) {
    struct Finally {
      DeviceProxy& proxy;
      ~Finally() {
        // release: pairs with stop().
        proxy.stopped_.store(true, std::memory_order_release);
        proxy.stopped_.notify_all();
      }
    } finally{*proxy};
    try {
      proxy->run(stop_fd);
    } catch (const std::exception&) {  // no memory, say; kernels must not wait for this thread
      proxy->fail(proxy->has_ended_);
      throw;  // into the log
    }
  });
  return proxy;
}

void DeviceProxy::add(std::shared_ptr<ProxyLink> link) {
  {
    const std::lock_guard lock(mutex_);
    new_links_.push_back(std::move(link));
  }
  // release: orders nothing that the mutex does not. The thread that sees it takes the mutex.
  changed_.store(true, std::memory_order_release);
  wake();
}

void DeviceProxy::wake() {
  // acq_rel: what was done before is there for the thread that takes note of it.
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.fd(), &one, sizeof one);
}

void DeviceProxy::stop() {
  if (process_generation() != generation_) return;  // a forked child does not have the thread
  stopping_.store(true, std::memory_order_release);
  wake();
  // acquire: what the thread did to the links comes before.
  stopped_.wait(false, std::memory_order_acquire);
}

std::optional<Error> DeviceProxy::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool DeviceProxy::is_flushed() const {
  return std::ranges::all_of(links_, [](const auto& link) { return link->is_flushed(); });
}

void DeviceProxy::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
}

bool DeviceProxy::advance() {
  if (changed_.exchange(false, std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    for (auto& link : new_links_) links_.push_back(std::move(link));
    new_links_.clear();
  }
  bool moved = false;
  for (auto& link : links_) {
    try {
      moved = link->advance() || moved;
    } catch (const Error& e) {
      fail(e);
      link = nullptr;
    }
  }
  std::erase(links_, nullptr);
  return moved;
}

void DeviceProxy::run(int stop_fd) {
  auto last = Clock::now();  // that something moved, or was about to
  std::optional<Clock::time_point> end;
  // acquire: pairs with stop(), which orders nothing else.
  while (!stopping_.load(std::memory_order_acquire)) {
    const bool woken = woken_.exchange(false, std::memory_order_acq_rel);
    const bool moved = advance();
    const auto now = Clock::now();
    if (end && (now > *end || (!moved && is_flushed()))) break;
    if (woken || moved) last = now;
    if (now - last < kLook) {
      sched_yield();
      continue;
    }
    const auto sleep = std::clamp<Clock::duration>((now - last) / 8, kShortestSleep, kLongestSleep);
    const timespec most{0, static_cast<long>(std::chrono::nanoseconds(sleep).count())};
    // In the last seconds of the process the first descriptor is always readable.
    pollfd both[] = {{end ? -1 : stop_fd, POLLIN, 0}, {doorbell_.fd(), POLLIN, 0}};
    if (ppoll(both, 2, &most, nullptr) <= 0) continue;
    if (both[0].revents != 0) end = Clock::now() + kGrace;
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
  }
  links_.clear();
}

}  // namespace tutti
