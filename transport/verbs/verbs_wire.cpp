// A wire over RDMA: how it comes about and ends, and what it sends. What comes is in
// verbs_receive.cpp, what goes past the rings in verbs_lending.cpp.
#include "transport/verbs/verbs_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "transport/verbs/verbs_ring.h"

namespace tutti {
VerbsWire::VerbsWire(Owner& owner, std::shared_ptr<VerbsWindows> windows, int peer,
                     const VerbsOptions& options)
    : Wire(owner), windows_(std::move(windows)), channel_(windows_->device(), peer, options) {}

VerbsWire::~VerbsWire() = default;

std::shared_ptr<RingMemory> VerbsWire::make_ring(std::size_t bytes) {
  auto memory = std::make_shared<RingMemory>(bytes + sizeof(CreditLine));
  memory->registration = std::make_shared<Registration>(channel_.device(), *memory);
  return memory;
}

std::string VerbsWire::carrier() const {
  return "verbs, " + tutti::describe(channel_.device()->port());
}

std::vector<std::byte> VerbsWire::hello() {
  const auto bytes = std::as_bytes(std::span(&channel_.address(), 1));
  return {bytes.begin(), bytes.end()};
}

void VerbsWire::greet(std::span<const std::byte> hello) {
  const std::lock_guard lock(mutex_);
  VerbsAddress peer;
  if (closed_) return;
  if (greeted_ || hello.size() != sizeof peer) return close_with("it has sent what cannot be");
  std::memcpy(&peer, hello.data(), sizeof peer);
  greeted_ = true;
  try {
    channel_.connect(peer);
  } catch (const Error& error) {
    close_with(error.what());
  }
}

void VerbsWire::start() {
  const std::lock_guard lock(mutex_);
  if (!greeted_) return close_with("it has sent what cannot be");
  started_ = true;
  if (!closed_) push();
}

void VerbsWire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  let_go();
}

void VerbsWire::let_go() {
  if (stopped_) return;
  stopped_ = true;
  channel_.stop_and_drain(std::chrono::seconds(1));
  kept_.clear();
  lent_.clear();
}

bool VerbsWire::arm() {
  std::uint64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return true;
    try {
      channel_.arm();
    } catch (const Error& error) {
      close_with(error.what());
    }
    before = came_;
  }
  // What came before it was armed makes no event.
  drive();
  const std::lock_guard lock(mutex_);
  return came_ == before;
}

void VerbsWire::close_with(const std::string& why) {
  if (closed_) return;
  closed_ = true;
  owner_.on_closed(why);
}

// --- Sending -------------------------------------------------------------------------------------

void VerbsWire::announce(OutLink& link, const Opening& opening) {
  if (link.shape().slot_bytes > channel_.most_bytes()) {
    throw Error(ErrorCode::system,
                fmt::format("the RDMA device {} cannot send messages of {} bytes; TUTTI_SLOT_BYTES "
                            "may be {} at most",
                            channel_.device()->port().device, link.shape().slot_bytes,
                            channel_.most_bytes()));
  }
  Registration& registration = Registration::of(link.memory());
  registration.group = opening.name.group;
  Said said;
  said.kind = Said::open;
  said.link = link.number();
  said.address = reinterpret_cast<std::uintptr_t>(link.memory()->data());
  said.key = registration.region.remote_key();
  said.opening = opening;
  said_.push_back(said);
  if (!closed_) push();
}

void VerbsWire::say_left(std::uint64_t group) {
  // After all that is published: so the messages have to be in front of it.
  if (!closed_) push();
  Said said;
  said.kind = Said::left;
  said.opening.name.group = group;
  said_.push_back(said);
}

void VerbsWire::say_bye() {
  const std::lock_guard lock(mutex_);
  Said said;
  said.kind = Said::bye;
  said_.push_back(said);
  if (!closed_) push();
}

bool VerbsWire::is_delivered() {
  const std::lock_guard lock(mutex_);
  if (!closed_) take();
  if (closed_) return true;
  try {
    channel_.mark();
  } catch (const Error& error) {
    close_with(error.what());
    return true;
  }
  return !has_unsent() && sending_.empty() && channel_.completed() == channel_.submitted();
}

void VerbsWire::push() {
  if (!may_send()) return;
  try {
    push_said();
    push_credits();
    push_messages();
    channel_.submit();
  } catch (const Error& error) {
    close_with(error.what());
  }
}

void VerbsWire::push_said() {
  while (!said_.empty()) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&said_.front());
    if (!channel_.send({bytes, sizeof(Said)})) return;
    said_.pop_front();
  }
}

void VerbsWire::push_credits() {
  // A credit is a write and a notice of its own, so it goes when much is owed, and else when there
  // is nothing better to do and the sender may be waiting for it.
  const bool all = said_.empty() && sending_.empty();
  for (std::size_t l = 0; l < owing_.size();) {
    InLink& link = *owing_[l];
    const Registration& ring = Registration::of(link.memory());
    const InLink::Credit credit = link.credit();
    if (link.owes() && ring.open) {
      if (!link.owes_much() && (!all || !sender_may_wait(link))) {
        ++l;
        continue;
      }
      CreditLine& line = passing_credit(*link.memory());
      line.consumed.store(credit.consumed, std::memory_order_relaxed);
      line.freed.store(credit.freed, std::memory_order_relaxed);
      constexpr std::size_t kBytes = offsetof(CreditLine, freed) + sizeof(line.freed);
      if (!channel_.write({}, ring.mirrored(&line, kBytes), link.number() | kCredit)) return;
      link.told(credit);
    }
    link.listed = false;
    owing_[l] = owing_.back();
    owing_.pop_back();
  }
}

bool VerbsWire::sender_may_wait(const InLink& link) {
  const Registration& ring = Registration::of(link.memory());
  const ConnectionShape& shape = link.shape();
  // As the sender sees it: what has come, and is not known to be free. One that has no room for a
  // message has all slots in use, or all data but twice the message's, which wants to lie in one
  // piece; half of that comes sooner, and is seen even if the last have yet to come.
  const std::uint64_t slots = ring.came - link.told().consumed;
  const std::uint64_t bytes = ring.cursor.passed() - link.told().freed;
  return 2 * slots >= shape.slots || 2 * (bytes + shape.slot_bytes) >= shape.data_bytes();
}

void VerbsWire::push_messages() {
  // In turn, so that none waits for another's long messages.
  for (std::size_t l = 0, idle = 0; idle < sending_.size();) {
    if (l >= sending_.size()) l = 0;
    OutLink& link = *sending_[l];
    const Registration& ring = Registration::of(link.memory());
    if (!link.ready()) {
      link.listed = false;
      sending_[l] = sending_.back();
      sending_.pop_back();
      continue;
    }
    ++l;
    if (ring.gone) {
      link.pass();
    } else if (!ring.open) {
      ++idle;  // until the peer has said where
      continue;
    } else if (!push_message(link)) {
      return;
    }
    idle = 0;
  }
}

bool VerbsWire::push_message(OutLink& link) {
  const OutLink::Message m = link.next();
  const std::uint32_t tag = m.header->tag, bytes = m.header->bytes;
  const bool is_short = bytes <= kInlineBytes;
  Registration& ring = Registration::of(link.memory());
  VerbsWrite data, header;
  std::uint32_t notice = link.number();
  if (!is_short) {
    const detail::ConnectionView view(link.memory()->data(), link.shape());
    data = ring.mirrored(view.data + m.at, bytes);
    if (m.lent) {
      const auto keys = windows_->keys(m.payload, bytes);
      if (!keys) {  // its window has ended, which it must not
        link.keep_unpassed(m.payload, m.payload + bytes);
        return push_message(link);
      }
      data.from = m.payload;
      data.local_key = keys->local;
    }
    const Landing& landing = ring.landings[m.number % ring.landings.size()];
    if (landing.number == m.number && landing.tag == tag && landing.bytes == bytes) {
      data.to = landing.address;
      data.remote_key = landing.key;
      notice |= kLanded;
    }
  }
  if (!is_short && tag == ring.tag && bytes == ring.bytes) {
    notice |= kAsBefore;
  } else {
    // All of the header but the number.
    header = ring.mirrored(&m.header->tag, sizeof tag + sizeof bytes + (is_short ? bytes : 0));
  }
  if (!channel_.write(data, header, notice, m.lent)) return false;
  if (m.lent) lent_.push_back({&link, m.number, m.payload, bytes, channel_.appended()});
  ring.tag = tag;
  ring.bytes = bytes;
  link.pass();
  return true;
}

// --- Links that end ------------------------------------------------------------------------------

void VerbsWire::drop(OutLink& link) {
  std::erase_if(lent_, [&](const Lent& l) { return l.link == &link; });
  keep(link.memory());
}
void VerbsWire::drop(InLink& link) { keep(link.memory()); }

void VerbsWire::keep(const std::shared_ptr<RingMemory>& memory) {
  const Registration& ring = Registration::of(memory);
  if (closed_ || !ring.open) return;  // nothing was written to it or from it
  // What a peer writes to memory that is not registered any more would end the connection.
  kept_.push_back({ring.group, channel_.submitted(), memory});
  try {
    channel_.mark();
  } catch (const Error& error) {
    close_with(error.what());
  }
}

void VerbsWire::free_kept() {
  std::erase_if(kept_, [&](const Kept& k) {
    return channel_.completed() >= k.until &&
           std::ranges::find(groups_left_, k.group) != groups_left_.end();
  });
}

}  // namespace tutti
