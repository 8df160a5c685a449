// A wire over UCX: what it sends, and in which order.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "transport/ucx/ucx_request.h"

namespace tutti {
namespace {

constexpr std::size_t kLongUnderWay = 2;  // at a time; what is published meanwhile makes a run
constexpr std::size_t kRunsInRing = 4;    // the longest run has such a part of a ring

}  // namespace

void UcxWire::announce(OutLink& link, const Opening& opening) {
  said_.push_back({{Frame::open, link.number(), 0, sizeof(Opening), 0, 0}, opening});
  if (!closed_) push();
}

void UcxWire::say_left(std::uint64_t group) {
  // After all that is published and freed.
  if (!closed_) push();
  if (ep_ != nullptr) push_credits(true);
  said_.push_back({{Frame::left, 0, 0, 0, group, 0}, {}});
}

void UcxWire::push() {
  if (ep_ == nullptr) return;
  push_said();
  push_credits(!push_messages());
}

void UcxWire::send(Request* r, const void* data, std::size_t bytes) {
  ucp_request_param_t params{};
  params.cb.send = &UcxWire::on_sent;
  if (long_bytes_ == kLongBytesOverTcp && !r->is_long) {
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
  }
  r->header.key = peer_key_;
  start(r, params, [&](const ucp_request_param_t& p) {
    return ucx_.am_send_nbx(ep_, kMessageId, &r->header, sizeof(Header), data, bytes, &p);
  });
}

void UcxWire::on_sent(void* request, ucs_status_t status, void* user) {
  auto* const r = static_cast<Request*>(user);
  UcxLibrary::get().request_free(request);
  if (UcxWire* const wire = r->wire; wire != nullptr && status != UCS_OK) {
    wire->close_with(fmt::format("UCX: {}", wire->ucx_.text(status)));
  }
  end(r);
}

void UcxWire::push_said() {
  while (!said_.empty() && !closed_) {
    Request* const r = new_request();
    r->header = {};
    r->header.frame = said_.front().frame;
    r->opening = said_.front().opening;
    said_.pop_front();
    if (r->header.frame.kind == Frame::left || r->header.frame.kind == Frame::bye) {
      r->header.frame.at = sent_;
    }
    send(r, &r->opening, r->header.frame.bytes);
  }
}

bool UcxWire::push_messages() {
  const std::uint64_t before = sent_;
  // In turn, so that none waits for another's long messages.
  for (std::size_t l = 0, idle = 0; idle < sending_.size() && !closed_;) {
    if (l >= sending_.size()) l = 0;
    OutLink& link = *sending_[l];
    if (!link.ready()) {
      link.listed = false;
      sending_[l] = sending_.back();
      sending_.pop_back();
      continue;
    }
    ++l;
    const OutLink::Message m = link.next();
    const bool is_long = m.header->bytes >= long_bytes_;
    // Until the peer knows the link, or another is through.
    if (!open_.contains(link.number()) || (is_long && long_ >= kLongUnderWay)) {
      ++idle;
      continue;
    }
    idle = 0;
    Request* const r = new_request();
    Header& h = r->header;
    h = {};
    h.frame = {Frame::data, link.number(), m.header->tag, m.header->bytes, m.number, m.at};
    h.credit = next_credit(true);
    link.pass();
    ++sent_;
    if (is_long) {
      extend(h, link, m.payload);
      r->is_long = true;
      ++long_;
    }
    if (m.lent) {
      r->lent = m.payload;
      r->out = &link;
    } else {
      r->memory = link.memory();
    }
    send(r, m.payload, h.bytes());
  }
  return sent_ != before;
}

void UcxWire::extend(Header& h, OutLink& link, const std::byte* payload) {
  const std::size_t most = link.shape().data_bytes() / kRunsInRing;
  const std::uint32_t each = h.frame.bytes;
  while (link.ready()) {
    const OutLink::Message m = link.next();
    const std::size_t before = (std::size_t{h.more} + 1) * each;
    const std::uint32_t bytes = m.header->bytes;
    // At both ends.
    const bool behind =
        bytes > kInlineBytes && m.at == h.frame.at + before && m.payload == payload + before;
    if (!behind || bytes > each || goes_apart(bytes) != goes_apart(each) ||
        m.header->tag != h.frame.tag || before + bytes > most)
      return;
    ++h.more;
    h.last_bytes = bytes;
    link.pass();
    if (bytes < each) return;
  }
}

UcxWire::Credit UcxWire::next_credit(bool any) {
  for (std::size_t l = owing_.size(); l-- > 0;) {
    InLink& link = *owing_[l];
    const InLink::Credit credit = link.credit();
    const bool owes = link.owes();
    if (owes && !any && !link.owes_much()) continue;
    link.listed = false;
    owing_[l] = owing_.back();
    owing_.pop_back();
    if (!owes) continue;
    link.told(credit);
    return {link.number(), 0, credit.consumed, credit.freed};
  }
  return {};
}

void UcxWire::push_credits(bool all) {
  while (!owing_.empty() && !closed_) {
    Request* const r = new_request();
    std::size_t count = 0;
    while (count < kCredits) {
      r->credits[count] = next_credit(all);
      if (r->credits[count].link == 0) break;
      ++count;
    }
    if (count == 0) return end(r);
    const auto bytes = static_cast<std::uint32_t>(count * sizeof(Credit));
    r->header = {};
    r->header.frame = {Frame::credit, 0, 0, bytes, 0, 0};
    ++sent_;
    send(r, r->credits.data(), bytes);
  }
}

}  // namespace tutti
