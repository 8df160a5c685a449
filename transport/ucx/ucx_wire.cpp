#include "transport/ucx/ucx_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/log.h"
#include "transport/handshake.h"

namespace tutti {
namespace {

// Of a ring: what UCX knows it by.
class Mapping {
 public:
  Mapping(std::shared_ptr<UcxContext> context, const RingMemory& memory)
      : context_(std::move(context)) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory.data();
    params.length = memory.size();
    const UcxLibrary& ucx = context_->ucx;
    ucx.check(ucx.mem_map(context_->handle, &params, &handle_), "mapping memory of a link");
  }
  ~Mapping() { context_->ucx.mem_unmap(context_->handle, handle_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static ucp_mem_h of(const RingMemory& memory) {
    return static_cast<const Mapping*>(memory.registration.get())->handle_;
  }

 private:
  std::shared_ptr<UcxContext> context_;
  ucp_mem_h handle_ = nullptr;
};

constexpr std::size_t kSpareRequests = 64;
constexpr std::uint32_t kLongBytes = 16384;
// Over TCP what fits into one of its segments, 64 KiB with the headers, is faster without a
// rendezvous, whatever UCX believes (1.13: from 20 KiB on).
constexpr std::uint32_t kLongBytesOverTcp = 61440;
constexpr std::size_t kLongUnderWay = 2;  // at a time; what is published meanwhile makes a run
constexpr std::size_t kRunsInRing = 4;    // the longest run has such a part of a ring

// UCX's transports under an endpoint ("tcp"; "sysv, cma"), of which there is only a text for
// people:
//     lane[0]:  2:sysv/memory.0 md[2] -> ...
// Empty: the text is another one.
std::string carriers_of(const UcxLibrary& ucx, ucp_ep_h ep) {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucx.ep_print_info(ep, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  std::string all;
  std::istringstream lines(std::string(text, bytes));
  for (std::string line; std::getline(lines, line);) {
    // "lane[0]: 2:sysv/memory.0": behind the second colon, up to the slash.
    const auto lane = line.find("lane["), first = line.find(':', lane);
    const auto second = line.find(':', first + 1), slash = line.find('/', second);
    if (lane == std::string::npos || first == std::string::npos || second == std::string::npos ||
        slash == std::string::npos) {
      continue;
    }
    const std::string name = line.substr(second + 1, slash - second - 1);
    if (fmt::format(", {},", all).find(fmt::format(" {},", name)) != std::string::npos) continue;
    all += all.empty() ? name : ", " + name;
  }
  return all;
}

}  // namespace

UcxWire::UcxWire(Owner& owner, std::shared_ptr<UcxWorker> worker)
    : Wire(owner, &worker->mutex()), worker_(std::move(worker)), ucx_(worker_->ucx()) {
  wire::fill_random(wire::writable_bytes_of(key_));
  const std::lock_guard lock(mutex_);
  worker_->add(key_, *this);
}

UcxWire::~UcxWire() {
  shut();
  const std::lock_guard lock(mutex_);
  worker_->remove(key_);
  for (Request* r : requests_) {
    r->wire = nullptr;
    worker_->keep(std::shared_ptr<Request>(r));
  }
}

std::shared_ptr<RingMemory> UcxWire::make_ring(std::size_t bytes) {
  auto memory = std::make_shared<RingMemory>(bytes);
  memory->registration = std::make_shared<Mapping>(worker_->context(), *memory);
  return memory;
}

// --- The connection ------------------------------------------------------------------------------

std::vector<std::byte> UcxWire::hello() {
  const Hello hello{key_};
  const std::vector<std::byte>& address = worker_->address();
  std::vector<std::byte> bytes(sizeof hello + address.size());
  std::memcpy(bytes.data(), &hello, sizeof hello);
  std::memcpy(bytes.data() + sizeof hello, address.data(), address.size());
  return bytes;
}

void UcxWire::greet(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  Hello hello;
  if (closed_) return;
  if (ep_ != nullptr || bytes.size() <= sizeof hello)
    return close_with("it has sent what cannot be");
  std::memcpy(&hello, bytes.data(), sizeof hello);
  peer_key_ = hello.key;
  connect(bytes.subspan(sizeof hello));
  if (closed_) return;
  if (peer_bye_) ended();
  if (!closed_) push();
}

void UcxWire::connect(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // Whether the peer lives, the control stream knows. Were UCX to promise it, it could not use
  // shared memory, nor put into the peer's memory over TCP, which is twice as fast as what it does
  // then (1.13; openucx/ucx#11929). What it hears by itself, it says.
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {&UcxWire::on_error, worker_.get()};
  const ucs_status_t status = ucx_.ep_create(worker_->handle(), &params, &ep_);
  if (status == UCS_OK) {
    carriers_ = carriers_of(ucx_, ep_);
    long_bytes_ = carriers_ == "tcp" ? kLongBytesOverTcp : kLongBytes;
    log().debug("UCX: messages go over {}", carriers_.empty() ? "?" : carriers_);
    return;
  }
  ep_ = nullptr;
  close_with(
      fmt::format("UCX does not reach it: {}; TUTTI_UCX_TLS and TUTTI_UCX_NET_DEVICES say "
                  "what it may use",
                  ucx_.text(status)));
}

std::string UcxWire::carrier() const {
  const std::lock_guard lock(mutex_);
  return carriers_.empty() ? "ucx" : fmt::format("ucx ({})", carriers_);
}

void UcxWire::close_with(const std::string& why) {
  if (closed_) return;
  closed_ = true;
  owner_.on_closed(why);
}

void UcxWire::on_error(void* user, ucp_ep_h ep, ucs_status_t status) {
  auto& worker = *static_cast<UcxWorker*>(user);
  worker.for_all([&](UcxWire& wire) {
    if (wire.ep_ != ep) return;
    wire.failed_ = true;
    const bool over = wire.said_bye_ || wire.peer_bye_;
    wire.close_with(over ? "" : fmt::format("UCX: {}", wire.ucx_.text(status)));
  });
}

void UcxWire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (ep_ == nullptr) return;
  const ucp_ep_h ep = std::exchange(ep_, nullptr);
  // A peer that is gone, or may be, would be waited for: that endpoint goes with the worker.
  if (failed_ || !peer_bye_) return;
  const ucp_request_param_t params{};
  worker_->keep_closing(ucx_.ep_close_nbx(ep, &params));
}

void UcxWire::say_bye() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (ep_ == nullptr) {
    closed_ = true;
    return;
  }
  push();
  said_bye_ = true;
  said_.push_back({{Frame::bye, 0, 0, 0, 0, 0}, {}});
  push();
}

bool UcxWire::is_delivered() {
  const std::lock_guard lock(mutex_);
  if (!closed_) worker_->progress();
  return closed_ || acknowledged_;
}

// --- Sending -------------------------------------------------------------------------------------

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

UcxWire::Request* UcxWire::new_request() {
  std::unique_ptr<Request> r;
  if (spare_.empty()) {
    r = std::make_unique<Request>();
  } else {
    r = std::move(spare_.back());
    spare_.pop_back();
  }
  r->wire = this;
  r->worker = worker_.get();
  r->index = requests_.size();
  requests_.push_back(r.get());
  return r.release();
}

void UcxWire::end(Request* r) {
  if (r->calling) {
    r->ended = true;
    return;
  }
  UcxWire* const wire = r->wire;
  if (wire == nullptr) return r->worker->release(r);
  std::unique_ptr<Request> owned(r);
  wire->requests_.back()->index = r->index;
  wire->requests_[r->index] = wire->requests_.back();
  wire->requests_.pop_back();
  if (r->is_long) {
    --wire->long_;
    if (!wire->sending_.empty()) wire->worker_->push_soon(*wire);
  }
  r->memory.reset();
  r->link = nullptr;
  r->ended = r->is_long = false;
  if (wire->spare_.size() < kSpareRequests) wire->spare_.push_back(std::move(owned));
}

template <class Call>
bool UcxWire::start(Request* r, ucp_request_param_t params, Call&& call) {
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = r;
  if (r->memory) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.memh = Mapping::of(*r->memory);
  }
  // UCX may call back before it returns.
  r->calling = true;
  const ucs_status_ptr_t request = call(params);
  r->calling = false;
  const bool under_way = UCS_PTR_IS_PTR(request);
  if (r->ended || !under_way) end(r);
  if (UCS_PTR_IS_ERR(request)) {
    close_with(fmt::format("UCX: {}", ucx_.text(UCS_PTR_STATUS(request))));
  }
  return under_way;
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
      extend(h, link);
      r->is_long = true;
      ++long_;
    }
    r->memory = link.memory();
    send(r, m.payload, h.bytes());
  }
  return sent_ != before;
}

void UcxWire::extend(Header& h, OutLink& link) {
  const std::size_t most = link.shape().data_bytes() / kRunsInRing;
  const std::uint32_t each = h.frame.bytes;
  while (link.ready()) {
    const OutLink::Message m = link.next();
    const std::size_t before = (std::size_t{h.more} + 1) * each;
    const std::uint32_t bytes = m.header->bytes;
    const bool behind = bytes > kInlineBytes && m.at == h.frame.at + before;
    if (!behind || bytes > each || m.header->tag != h.frame.tag || before + bytes > most) return;
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

void UcxWire::take() {
  worker_->poll();
  if (!ends_.empty()) settle();
}

// --- Receiving -----------------------------------------------------------------------------------

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
  std::byte* const to = found.link->place(f.number, f.bytes, f.at);
  if (to == nullptr) return false;
  if (h.more > 0) {
    // If the first and the last have their places in one piece of the ring, so have all between.
    const Frame last = h.at(h.more);
    if (f.bytes <= kInlineBytes || last.bytes <= kInlineBytes ||
        found.link->place(last.number, last.bytes, last.at) != to + (last.at - f.at)) {
      return false;
    }
  }
  if (!rendezvous) {
    if (f.bytes > 0) std::memcpy(to, data, h.bytes());
    return came(found.link, h);
  }
  Request* const r = new_request();
  r->header = h;
  r->link = found.link;
  r->memory = found.link->memory();
  ucp_request_param_t params{};
  params.cb.recv_am = &UcxWire::on_received;
  taken = true;
  const bool under_way = start(r, params, [&](const ucp_request_param_t& p) {
    return ucx_.am_recv_data_nbx(worker_->handle(), data, to, h.bytes(), &p);
  });
  return under_way || closed_ || came(found.link, h);
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

bool UcxWire::serve(std::vector<std::pair<Owner*, std::uint64_t>>& left) {
  if (!closed_) push();
  if (!ends_.empty()) settle();
  for (const std::uint64_t group : peer_left_) left.emplace_back(&owner_, group);
  peer_left_.clear();
  return !closed_ && ep_ != nullptr &&
         (!sending_.empty() || !said_.empty() || !requests_.empty() || !ends_.empty());
}

// --- Links that end ------------------------------------------------------------------------------

void UcxWire::drop(OutLink& link) { open_.erase(link.number()); }

void UcxWire::drop(InLink& link) {
  for (Request* r : requests_) {
    if (r->link == &link) r->link = nullptr;
  }
}

}  // namespace tutti
