// See wire.h: the life of links and of the wire, and the functions that drive it. wire_send.cpp has
// the sending part, wire_receive.cpp the receiving one; wire_memory.cpp has what is done with
// memory outside of rings.
#include "transport/network/wire.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "transport/host/pages.h"

namespace tutti {
namespace {

// Each takes in a part of what a kernel holds for a socket, which is some megabytes.
constexpr int kLastLooks = 64;

}  // namespace

Wire::Wire(Owner& owner, const MakeEndpoint& make, std::mutex* lock)
    : owner_(owner), mutex_(lock != nullptr ? *lock : own_mutex_) {
  const std::lock_guard held(mutex_);
  endpoint_ = make(*this);
}

Wire::~Wire() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  endpoint_->close(peer_bye_);
  // Links first: a device must not know memory that is gone.
  outs_.clear();
  ins_.clear();
  kept_.clear();
  endpoint_.reset();
}

std::string Wire::carrier() const { return endpoint_->carrier(); }

// --- How it comes about and ends -----------------------------------------------------------------

void Wire::attach(Stream first, Stream second, bool sends_on_second) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  endpoint_->connect(std::move(first), std::move(second), sends_on_second);
  started_ = true;
  push();
  if (settle()) owner_.on_moved();
}

bool Wire::add_stripe(Stream stripe) {
  const std::lock_guard lock(mutex_);
  if (!closed_) endpoint_->add_stripe(std::move(stripe));
  return !closed_;
}

std::vector<std::byte> Wire::address() {
  const std::lock_guard lock(mutex_);
  return endpoint_->address();
}

void Wire::connect(std::span<const std::byte> address) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  connected_ = true;
  endpoint_->connect(address);
}

void Wire::start() {
  const std::lock_guard lock(mutex_);
  if (!connected_) return close_with(kNonsense);
  started_ = true;
  if (!ends_.empty()) settle_ends();
  push();
  if (settle()) owner_.on_moved();
}

void Wire::say_bye() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (!started_) {
    closed_ = true;
    return;
  }
  push();
  said_bye_ = true;
  say(Control::bye, 0);
  push();
  settle();
}

bool Wire::is_delivered() {
  const std::lock_guard lock(mutex_);
  if (!closed_ && !abilities().level_triggered) endpoint_->poll();
  return closed_ || acknowledged_ || (!has_unsent() && endpoint_->is_delivered());
}

void Wire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  endpoint_->close(peer_bye_);
  kept_.clear();
  if (settle()) owner_.on_moved();
}

// --- Links ---------------------------------------------------------------------------------------

std::shared_ptr<RingMemory> Wire::make_ring(std::size_t bytes) {
  auto memory = std::make_shared<RingMemory>(bytes);
  memory->region = endpoint_->register_ring(memory->data(), bytes);
  return memory;
}

bool Wire::reaches(const std::byte* memory, std::size_t bytes) {
  return bytes >= abilities().least_direct &&
         (!abilities().registers || endpoint_->window_region(memory, bytes) != nullptr);
}

OutLink& Wire::out(const LinkName& name, const ConnectionShape& shape, Doorbell& owner) {
  const std::lock_guard lock(mutex_);
  if (const auto known = outs_.find(name); known != outs_.end()) return *known->second;
  if (shape.slot_bytes > abilities().most_bytes) {
    throw Error(ErrorCode::system,
                fmt::format("messages of {} bytes do not go over {}; TUTTI_SLOT_BYTES may be {} at "
                            "most",
                            shape.slot_bytes, carrier(), abilities().most_bytes));
  }
  auto made = std::make_unique<OutLink>(*this, ++last_number_, shape, owner);
  OutLink& link = *made;
  const auto entry = outs_.emplace(name, std::move(made)).first;
  try {
    outs_by_number_[link.number()] = &link;
    say(Control::open, link.number()).opening = {name, shape.slots, shape.slot_bytes,
                                                 shape.most_full};
  } catch (...) {  // the peer has heard nothing of it
    outs_by_number_.erase(link.number());
    outs_.erase(entry);
    throw;
  }
  if (needs_answer()) push();
  if (settle()) owner_.on_moved();
  return link;
}

InLink& Wire::find_or_make_in(const LinkName& name, const ConnectionShape& shape) {
  const auto known = ins_.find(name);
  if (known == ins_.end()) {
    return *ins_.emplace(name, std::make_unique<InLink>(*this, shape)).first->second;
  }
  if (known->second->shape() != shape) {
    throw Error(
        ErrorCode::mismatch,
        "a rank on another host has links of another shape (TUTTI_SLOTS, TUTTI_SLOT_BYTES)");
  }
  return *known->second;
}

std::size_t Wire::ring_bytes(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [name, link] : outs_) {
    if (name.communicator == communicator) bytes += taken_bytes(whole_pages(link->data()));
  }
  for (const auto& [name, link] : ins_) {
    if (name.communicator == communicator) bytes += taken_bytes(whole_pages(link->data()));
  }
  return bytes;
}

void Wire::release_rings(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  const bool flushed = closed_ || !has_unsent();
  for (const auto& [name, link] : outs_) {
    if (name.communicator != communicator || !flushed) continue;  // what has left is needed no more
    link->memory()->give_back(whole_pages(link->data()));
  }
  for (const auto& [name, link] : ins_) {
    if (name.communicator != communicator || link->has_data()) continue;
    link->memory()->give_back(whole_pages(link->data()));
  }
}

InLink& Wire::in(const LinkName& name, const ConnectionShape& shape, Doorbell& owner) {
  const std::lock_guard lock(mutex_);
  InLink& link = find_or_make_in(name, shape);
  link.belongs_to(owner);
  return link;
}

InLink& Wire::in(const LinkName& name, const ConnectionShape& shape, InLink::Taker& taker) {
  const std::lock_guard lock(mutex_);
  InLink& link = find_or_make_in(name, shape);
  try {
    if (!link.set_taker(&taker)) close_with(kNonsense);
    push();
  } catch (...) {
    link.set_taker(nullptr);
    throw;
  }
  if (settle()) owner_.on_moved();
  return link;
}

void Wire::stop_taking(InLink& link) {
  const std::lock_guard lock(mutex_);
  link.set_taker(nullptr);
}

void Wire::note_freed(InLink& link) {
  if (!link.listed) owing_.push_back(&link);
  link.listed = true;
  owes_more_ = true;
  owes_much_ = owes_much_ || link.owes_much();
}

void Wire::close(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  const bool peer_left = peer_left_.erase(communicator) > 0;
  try {
    if (!peer_left) left_.insert(communicator);
    // After all that is published and freed.
    push();
    if (started_ && !closed_) push_credits(true);
  } catch (const std::exception& e) {
    close_with(e);
  }
  const auto is_of = [&](const auto& link) { return link.first.communicator == communicator; };
  for (auto& [name, link] : outs_) {
    if (name.communicator != communicator) continue;
    std::erase(sending_, link.get());
    for (DirectSend& d : direct_) {
      if (d.link == link.get()) d.link = nullptr;
    }
    outs_by_number_.erase(link->number());
  }
  std::erase_if(direct_, [](const DirectSend& d) { return d.link == nullptr && !d.keeps; });
  std::erase_if(outs_, is_of);
  std::erase_if(peer_exposes_,
                [&](const auto& e) { return e.second.communicator == communicator; });
  std::erase_if(exposed_, [&](auto& e) {
    if (e.second.communicator != communicator) return false;
    if (!peer_left && !closed_) kept_.emplace(communicator, e.second.region);
    return true;
  });
  for (auto& [name, link] : ins_) {
    if (name.communicator != communicator) continue;
    std::erase(owing_, link.get());
    if (link->number() == 0) continue;
    ins_by_number_[link->number()].link = nullptr;
    if (abilities().one_sided && !peer_left && !closed_)
      kept_.emplace(communicator, link->memory());
  }
  std::erase_if(ins_, is_of);
  if (peer_left) {
    std::erase_if(ins_by_number_,
                  [&](const auto& n) { return n.second.communicator == communicator; });
  }
  try {
    queue_left(communicator);
  } catch (const std::exception& e) {
    close_with(e);
  }
}

void Wire::say_left(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  push();
  queue_left(communicator);
}

void Wire::queue_left(std::uint64_t communicator) {
  say(Control::left, 0).communicator = communicator;
  push();
  if (settle()) owner_.on_moved();
}

void Wire::forget_left(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  peer_left_.erase(communicator);
}

void Wire::send(OutLink& link) {
  const std::lock_guard lock(mutex_);
  if (!link.listed) sending_.push_back(&link);
  link.listed = true;
  push();
  if (settle()) owner_.on_moved();
}

void Wire::credit(InLink& link) {
  const std::lock_guard lock(mutex_);
  if (!link.listed) owing_.push_back(&link);
  link.listed = true;
  owes_more_ = true;
  if (link.owes_much()) push();
  if (settle()) owner_.on_moved();
}

// --- What drives it ------------------------------------------------------------------------------

bool Wire::settle() {
  const bool unsent = !closed_ && has_unsent();
  if (std::exchange(unsent_, unsent) && !unsent) {
    moved_ = true;
    for (const auto& [name, link] : outs_) link->ring_owner();
  }
  const bool owes = owes_more_ && !owing_.empty();
  const bool has_work = started_ && !closed_ && (unsent || owes);
  if (has_work_.load(std::memory_order_relaxed) != has_work) {
    has_work_.store(has_work, std::memory_order_release);
  }
  return std::exchange(moved_, false);
}

void Wire::note_poll() {
  polled_.store(true, std::memory_order_relaxed);
  if (listening_.load(std::memory_order_relaxed) && listening_.exchange(false)) owner_.on_polled();
}

void Wire::take_in(int looks, bool tells, std::unique_lock<std::mutex> lock) {
  if (closed_) return;
  try {
    for (; looks > 0 && !closed_; --looks) {
      endpoint_->poll();
      if (!ends_.empty()) settle_ends();
    }
    tells = std::exchange(owes_much_, false) || tells;
    if (has_unsent() || (tells && !owing_.empty())) push();
  } catch (const std::exception& e) {
    close_with(e);
    throw;
  }
  std::vector<std::uint64_t> left;
  left.swap(heard_left_);
  const bool moved = settle();
  lock.unlock();
  if (moved) owner_.on_moved();
  for (const std::uint64_t communicator : left) owner_.on_left(communicator);
}

void Wire::drive(bool tells) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) take_in(1, tells, std::move(lock));
}

void Wire::take_last() { take_in(kLastLooks, true, std::unique_lock(mutex_)); }

void Wire::poll() {
  note_poll();
  drive(false);
}

void Wire::poll_and_tell() {
  note_poll();
  drive(true);
}

void Wire::drive() { drive(true); }

void Wire::send_rest() {
  bool moved = false;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || closed_) return;
    if (has_unsent() || !owing_.empty()) push();
    moved = settle();
  }
  if (moved) owner_.on_moved();
}

bool Wire::arm() {
  if (abilities().level_triggered) return true;
  std::uint64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return true;
    if (!endpoint_->arm()) return false;
    before = events_;
  }
  // What came before it was armed makes no event.
  drive();
  const std::lock_guard lock(mutex_);
  return events_ == before;
}

bool Wire::wants_room(std::size_t which) {
  const std::lock_guard lock(mutex_);
  return !closed_ && endpoint_->wants_room(which);
}

bool Wire::is_flushed() {
  const std::lock_guard lock(mutex_);
  return closed_ || !has_unsent();
}

}  // namespace tutti
