#include "execute/host/remote_links.h"

#include <algorithm>

#include "core/memory.h"

namespace tutti {
namespace {

bool is_memory(const CompiledOperand& p) {
  return p.where == CompiledOperand::in || p.where == CompiledOperand::out ||
         p.where == CompiledOperand::tmp;
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// The link, where it leads to another host and sends from memory; else null.
OutLink* zero_copy_link(const SendLink& s) {
  auto* const link = static_cast<OutLink*>(remote(*s.doorbell));
  return link != nullptr && link->can_send_from() ? link : nullptr;
}

/// The link, where it comes from another host and receives can be posted; else null.
InLink* posting_link(const ReceiveLink& r) {
  auto* const link = static_cast<InLink*>(remote(*r.doorbell));
  return link != nullptr && link->can_post() ? link : nullptr;
}

std::span<const CompiledOperand> destinations(const Move& m) {
  return {m.operands, m.destinations};
}
std::span<const CompiledOperand> sources(const Move& m) {
  return {m.operands + m.destinations, m.sources};
}

}  // namespace

bool RemoteLinks::has_posted_receive(const std::byte* begin, std::size_t bytes) const {
  return std::ranges::any_of(posted_receives_, [&](const PostedReceive& posted) {
    return overlap(posted.to, posted.bytes, begin, bytes);
  });
}

bool RemoteLinks::is_being_sent(const std::byte* begin, std::size_t bytes) const {
  return std::ranges::any_of(zero_copy_sends_, [&](const ZeroCopySend& l) {
    return l.touches(begin, bytes) && !l.is_over();
  });
}

void RemoteLinks::copy_pending_sends(const Action& action, std::size_t shift) {
  for (const Move& m : action.moves) {
    const std::size_t bytes = m.elements * mover_.element_bytes();
    for (const CompiledOperand& p : destinations(m)) {
      if (!is_memory(p)) continue;
      const std::byte* const begin = mover_.pointer(action, p, shift);
      for (const ZeroCopySend& send : zero_copy_sends_) {
        if (send.touches(begin, bytes) && !send.is_over())
          send.link->take_back(begin, begin + bytes);
      }
    }
  }
}

std::byte* RemoteLinks::receive_buffer(const Action& action, std::size_t shift) const {
  if (action.bytes_in < kZeroCopyBytes || action.receives.size() != 1 || action.moves.size() != 1) {
    return nullptr;
  }
  const Move& m = action.moves.front();
  if (m.remote || m.format != Format::plain || posting_link(action.receives.front()) == nullptr)
    return nullptr;
  const auto first = std::ranges::find_if(destinations(m), is_memory);
  if (first == destinations(m).end()) return nullptr;
  std::byte* const to = mover_.pointer(action, *first, shift);
  if (!posting_link(action.receives.front())->can_post(to, action.bytes_in)) return nullptr;
  const auto is_read = [&](const CompiledOperand& p) {
    return is_memory(p) &&
           overlap(mover_.pointer(action, p, shift), action.bytes_in, to, action.bytes_in);
  };
  if (std::ranges::any_of(sources(m), is_read) || is_being_sent(to, action.bytes_in))
    return nullptr;
  return to;
}

void RemoteLinks::post_receives(const LaneState& lane, std::size_t limit) {
  const Action* a = lane.next;
  if (a->bytes_in < kZeroCopyBytes || a->receives.size() != 1) return;
  InLink* const link = posting_link(a->receives.front());
  if (link == nullptr) return;
  std::uint64_t number = a->receives.front().link->received() + 1;
  constexpr std::size_t kMost = kMostPosted;
  if (link->posted_up_to() >= number + kMost / 2) return;
  std::array<InLink::PostedReceive, kMost> messages;
  std::array<std::span<const std::byte>, 4 * kMost> touched;  // by steps that come before
  std::size_t count = 0, touches = 0;
  std::size_t tile = lane.tile;
  const Action* end = lane.end;
  while (count < kMost) {
    std::byte* const to = receive_buffer(*a, tile * lane.tile_bytes);
    if (to == nullptr || posting_link(a->receives.front()) != link) break;
    const auto is_touched = [&](std::span<const std::byte> t) {
      return overlap(t.data(), t.size(), to, a->bytes_in);
    };
    if (std::any_of(touched.begin(), touched.begin() + touches, is_touched)) break;
    messages[count++] = {number++, to, mover_.binding().tag, a->bytes_in};
    const Move& m = a->moves.front();
    if (touches + m.destinations + m.sources > touched.size()) break;
    for (const CompiledOperand& p :
         std::span(m.operands, std::size_t{m.destinations} + m.sources)) {
      if (is_memory(p))
        touched[touches++] = {mover_.pointer(*a, p, tile * lane.tile_bytes), a->bytes_in};
    }
    if (++a != end) continue;
    // On to the next tile, unless others must be there first, or it has yet to be compiled.
    if (++tile >= std::min(lane.tiles, limit) || lane.own) break;
    const std::span<const Action> actions = tile + 1 == lane.tiles ? lane.last : lane.whole;
    a = actions.data();
    end = a + actions.size();
  }
  while (count > 0 && messages[0].number <= link->posted_up_to()) {
    std::shift_left(messages.begin(), messages.begin() + count--, 1);
  }
  if (count == 0) return;
  std::erase_if(posted_receives_, [](const PostedReceive& l) { return l.is_past(); });
  for (std::size_t k = 0; k < count; ++k) {
    posted_receives_.push_back({link, messages[k].number, messages[k].to, messages[k].bytes});
  }
  link->post(std::span(messages).first(count));
}

const CompiledOperand* RemoteLinks::send_buffer(const Action& action, std::size_t shift) const {
  if (action.sends.empty()) return nullptr;
  const auto cannot = [](const SendLink& s) { return zero_copy_link(s) == nullptr; };
  if (std::ranges::any_of(action.sends, cannot)) return nullptr;
  const auto may_be_sent = [&](const CompiledOperand& p) {
    if (!is_memory(p) || !(may_send_all_ || (may_send_input_ && p.where == CompiledOperand::in)))
      return false;
    const std::byte* const from = mover_.pointer(action, p, shift);
    const auto is_reached = [&](const SendLink& s) {
      return zero_copy_link(s)->can_send_from(from, action.bytes_out);
    };
    return std::ranges::all_of(action.sends, is_reached) &&
           !has_posted_receive(from, action.bytes_out);
  };
  // The message can be sent from where the step reads it, or from another place to which it writes
  // it.
  const Move& m = action.moves.front();
  const CompiledOperand* const source = sources(m).data();
  if (mover_.is_copy(action, m) && may_be_sent(*source)) return source;
  const auto written = destinations(m);
  const auto found = std::ranges::find_if(written, may_be_sent);
  return found == written.end() ? nullptr : &*found;
}

bool RemoteLinks::perform_zero_copy(const Action& action, std::size_t shift) {
  if (action.moves.size() != 1 || action.moves.front().remote) return false;
  const Move& m = action.moves.front();
  if (m.format != Format::plain) return false;  // what travels is in no memory of the user's
  const std::byte* arrived = nullptr;
  if (action.receives.size() == 1) {
    if (const InLink* const link = posting_link(action.receives.front())) {
      arrived = link->received_in_place();
      const std::uint64_t here = action.receives.front().link->received() + 1;
      std::erase_if(posted_receives_,
                    [&](const PostedReceive& l) { return l.link == link && l.message <= here; });
    }
  }
  const CompiledOperand* const sent = send_buffer(action, shift);
  if (arrived == nullptr && sent == nullptr) return false;

  const Mover::Operands at = mover_.operands(m);
  for (std::size_t k = 0; k < m.sources; ++k) {
    const CompiledOperand& p = sources(m)[k];
    const bool here = p.where == CompiledOperand::receive && arrived != nullptr;
    at.sources[k] = {here ? arrived : mover_.pointer(action, p, shift)};
  }
  std::size_t count = 0;
  for (const CompiledOperand& p : destinations(m)) {
    if (sent != nullptr && !is_memory(p)) continue;
    std::byte* const to = mover_.pointer(action, p, shift);
    if (!mover_.is_copy(action, m) || to != at.sources[0].data) at.destinations[count++] = to;
  }
  if (mover_.scales(m)) mover_.scale_sources(m);
  CombineOptions options = mover_.combine_options(action);
  // Data that nobody reads soon go past the cache: not those that the kernel reads next, nor those
  // that it has just written.
  if (mover_.writes_past_cache() && action.sends.empty() && arrived == nullptr) {
    options.stream = count;
  }
  if (count > 0) mover_.combine_elements(m, count, m.elements, options);

  for (const ReceiveLink& r : action.receives) {
    r.link->free();
    ring(*r.doorbell);
  }
  if (sent != nullptr) {
    const std::byte* const from = mover_.pointer(action, *sent, shift);
    constexpr std::size_t kMany = 64;
    if (zero_copy_sends_.size() >= kMany)
      std::erase_if(zero_copy_sends_, [](const ZeroCopySend& l) { return l.is_over(); });
    for (const SendLink& s : action.sends) {
      OutLink* const link = zero_copy_link(s);
      link->publish_from(from, mover_.binding().tag, action.bytes_out);
      zero_copy_sends_.push_back({link, s.link->sent(), from, from + action.bytes_out});
    }
  } else {
    for (const SendLink& s : action.sends) s.link->publish(mover_.binding().tag, action.bytes_out);
  }
  if (!action.sends.empty()) ring_later(action);
  return true;
}

// --- Polling and ringing -------------------------------------------------------------------------

void RemoteLinks::note_sends(std::span<const SendLink> sends) {
  for (const SendLink& s : sends) {
    const auto same = [&](const SendLink& f) { return f.doorbell == s.doorbell; };
    if (remote(*s.doorbell) != nullptr && std::ranges::none_of(far_sends_, same)) {
      far_sends_.push_back(s);
    }
  }
}

void RemoteLinks::bind() {
  unrung_ = 0;
  unrung_doorbells_.clear();
  finish();
  const Binding& b = mover_.binding();
  may_send_input_ = may_send_all_ = !b.windows;
  if (may_send_all_) return;
  const PlanHeader& h = b.plan->header;
  const int rank = b.plan->rank;
  const auto end = [&](const BlockTable& t, std::uint32_t blocks) {
    return t.base + t.extent(blocks) * mover_.element_bytes();
  };
  may_send_input_ = end(b.in, in_blocks(h.collective, h.ranks, rank, h.root)) <= b.out.base ||
                    end(b.out, out_blocks(h.collective, h.ranks, rank, h.root)) <= b.in.base;
}

void RemoteLinks::poll(std::span<const LaneState> lanes, std::size_t limit) {
  RemoteDoorbell* last = nullptr;
  const auto poll = [&](Doorbell& doorbell) {
    RemoteDoorbell* const far = remote(doorbell);
    if (far == nullptr || far == last) return;
    far->poll();
    last = far;
  };
  bool all_done = true;
  for (const LaneState& lane : lanes) {
    if (lane.tile >= std::min(lane.tiles, limit)) continue;
    all_done = false;
    post_receives(lane, limit);
    for (const ReceiveLink& r : lane.next->receives) {
      if (!r.link->ready()) poll(*r.doorbell);
    }
    for (const SendLink& s : lane.next->sends) {
      if (!s.link->ready(lane.next->bytes_out)) poll(*s.doorbell);
    }
  }
  if (!all_done) return;
  for (const SendLink& s : far_sends_) poll(*s.doorbell);
}

void RemoteLinks::abandon() {
  for (const ZeroCopySend& send : zero_copy_sends_) send.link->take_back(send.begin, send.end);
  for (const PostedReceive& posted : posted_receives_) posted.link->withdraw_receives();
  finish();
}

// The kernel takes one long message in a third of the time that it takes for ten short ones.
void RemoteLinks::ring_later(const Action& action) {
  constexpr std::size_t kTogether = std::size_t{512} << 10;
  for (const SendLink& s : action.sends) {
    if (remote(*s.doorbell) == nullptr) {
      ring(*s.doorbell);
    } else {
      unrung_ += action.bytes_out;
      if (std::ranges::find(unrung_doorbells_, s.doorbell) == unrung_doorbells_.end()) {
        unrung_doorbells_.push_back(s.doorbell);
      }
    }
  }
  if (unrung_ >= kTogether) ring_far();
}

void RemoteLinks::ring_far() {
  unrung_ = 0;
  for (Doorbell* doorbell : unrung_doorbells_) ring(*doorbell);
  unrung_doorbells_.clear();
}

}  // namespace tutti
