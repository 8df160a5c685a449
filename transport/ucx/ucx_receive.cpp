// A wire over UCX: what comes, and when it counts.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/ucx/ucx_request.h"

namespace tutti {

ucs_status_t UcxWire::on_message(void* worker, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param) {
  Header h;
  if (header_bytes != sizeof h) return UCS_OK;
  std::memcpy(&h, header, sizeof h);
  UcxWire* const wire = static_cast<UcxWorker*>(worker)->find(h.key);
  if (wire == nullptr || wire->closed_) return UCS_OK;  // a stranger's, or too late
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  bool taken = false;
  if (!wire->incoming(h, data, bytes, rendezvous, taken)) {
    wire->close_with("it has sent what cannot be");
  }
  return taken ? UCS_INPROGRESS : UCS_OK;
}

Frame UcxWire::Header::at(std::uint32_t i) const {
  Frame f = frame;
  f.number += i;
  f.at += std::uint64_t{i} * frame.bytes;
  if (i > 0 && i == more) f.bytes = last_bytes;
  return f;
}

bool UcxWire::incoming(const Header& h, void* data, std::size_t bytes, bool rendezvous,
                       bool& taken) {
  const Frame& f = h.frame;
  if (h.bytes() != bytes || !take_credit(h.credit)) return false;
  if (f.kind == Frame::data) return take_message(h, data, rendezvous, taken);
  if (rendezvous || h.more != 0) return false;
  switch (f.kind) {
    case Frame::credit: {
      if (bytes % sizeof(Credit) != 0) return false;
      for (std::size_t at = 0; at < bytes; at += sizeof(Credit)) {
        Credit credit;
        std::memcpy(&credit, static_cast<const std::byte*>(data) + at, sizeof credit);
        if (!take_credit(credit)) return false;
      }
      return came(nullptr, h);
    }
    case Frame::open: {
      Opening opening;
      if (bytes != sizeof opening) return false;
      std::memcpy(&opening, data, sizeof opening);
      if (!opened(f.link, opening)) return false;
      said_.push_back({{kOpened, f.link, 0, 0, 0, 0}, {}});
      return true;
    }
    case kOpened:
      if (find_out(f.link) != nullptr) open_.insert(f.link);
      return true;
    case Frame::left:
    case Frame::bye:
      ends_.push_back({f.number, f.at, f.kind == Frame::bye});
      settle();
      return true;
    case kAllCame:
      acknowledged_ = true;
      if (peer_bye_) close_with("");
      return true;
    default:
      return false;
  }
}

bool UcxWire::take_credit(const Credit& credit) {
  if (credit.link == 0) return true;
  OutLink* const link = find_out(credit.link);
  // A later one may have come before it.
  return link == nullptr || link->knows(credit.consumed, credit.freed) ||
         link->credit(credit.consumed, credit.freed);
}

bool UcxWire::take_message(const Header& h, void* data, bool rendezvous, bool& taken) {
  const Frame& f = h.frame;
  const Found found = find_in(f.link);
  if (!found.known) return false;
  if (found.link == nullptr) return came(nullptr, h);  // this rank has left
  std::byte* to = found.link->place(f.number, f.bytes, f.at);
  if (to == nullptr) return false;
  if (h.more > 0) {
    // If the first and the last have their places in one piece of the ring, so have all between.
    const Frame last = h.at(h.more);
    if (f.bytes <= kInlineBytes || last.bytes <= kInlineBytes ||
        found.link->place(last.number, last.bytes, last.at) != to + (last.at - f.at)) {
      return false;
    }
  }
  std::byte* const wanted = landing(*found.link, h);
  if (wanted != nullptr) to = wanted;
  if (!rendezvous) {
    if (f.bytes > 0) std::memcpy(to, data, h.bytes());
    return came(found.link, h);
  }
  Request* const r = new_request();
  r->header = h;
  r->link = found.link;
  r->landing = wanted;
  if (wanted == nullptr) r->memory = found.link->memory();
  ucp_request_param_t params{};
  params.cb.recv_am = &UcxWire::on_received;
  taken = true;
  const bool under_way = start(r, params, [&](const ucp_request_param_t& p) {
    return ucx_.am_recv_data_nbx(worker_->handle(), data, to, h.bytes(), &p);
  });
  return under_way || closed_ || came(found.link, h);
}

std::byte* UcxWire::landing(InLink& link, const Header& h) {
  std::byte* const first = link.land(h.frame.number, h.frame.tag, h.frame.bytes);
  bool all = first != nullptr;
  for (std::uint32_t i = 1; i <= h.more; ++i) {
    const Frame f = h.at(i);
    const std::byte* const to = link.land(f.number, f.tag, f.bytes);
    all = all && to == first + (f.at - h.frame.at);
  }
  if (all) return first;
  for (std::uint32_t i = 0; i <= h.more; ++i) link.came_into_slot(h.frame.number + i);
  return nullptr;
}

void UcxWire::on_received(void* request, ucs_status_t status, std::size_t, void* user) {
  auto* const r = static_cast<Request*>(user);
  UcxLibrary::get().request_free(request);
  UcxWire* const wire = r->wire;
  if (wire != nullptr && !wire->closed_) {
    if (status != UCS_OK) {
      wire->close_with(fmt::format("UCX: {}", wire->ucx_.text(status)));
    } else if (!wire->came(r->link, r->header)) {
      wire->close_with("it has sent what cannot be");
    }
  }
  end(r);
}

bool UcxWire::came(InLink* link, const Header& h) {
  ++came_;
  for (std::uint32_t i = 0; link != nullptr && i <= h.more; ++i) {
    const Frame f = h.at(i);
    if (!link->arrived(f.number, f.tag, f.bytes, f.at)) return false;
  }
  if (!ends_.empty()) settle();
  return true;
}

void UcxWire::settle() {
  bool bye = false;
  std::erase_if(ends_, [&](const End& e) {
    // Whoever waits until all that it has published is gone must not hear before that its peer,
    // which has it all, has left.
    if (e.after > came_ || (!requests_.empty() && !e.bye)) return false;
    if (e.bye) {
      bye = true;
    } else {
      peer_left_.push_back(e.group);
    }
    return true;
  });
  if (!bye) return;
  peer_bye_ = true;
  if (ep_ != nullptr) ended();
}

void UcxWire::ended() {
  said_.push_back({{kAllCame, 0, 0, 0, 0, 0}, {}});
  push_said();
  if (!said_bye_ || acknowledged_) close_with("");
}

}  // namespace tutti
