// See ucx_endpoint.h. What UCX says of its transports is read in carriers.cpp.
#include "transport/ucx/ucx_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/log.h"
#include "transport/network/remote_link.h"
#include "transport/sockets/handshake.h"
#include "transport/ucx/carriers.h"

namespace tutti {
namespace {

constexpr std::size_t kSpareRequests = 64;
constexpr auto kLastMessages = std::chrono::milliseconds(100);
constexpr std::size_t kLongUnderWay = 2;  // at a time; what is published meanwhile makes a run
constexpr std::uint32_t kLongBytes = kRunBytes;
// Over TCP what fits into one of its segments, 64 KiB with the headers, is faster without a
// rendezvous, whatever UCX believes (1.13: from 20 KiB on).
constexpr std::uint32_t kLongBytesOverTcp = 61440;

/// What UCX knows a link's ring by.
class UcxMapping final : public MemoryRegion {
 public:
  UcxMapping(std::shared_ptr<UcxContext> context, std::byte* memory, std::size_t bytes)
      : context_(std::move(context)) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory;
    params.length = bytes;
    const UcxLibrary& ucx = context_->ucx;
    ucx.check(ucx.mem_map(context_->handle, &params, &handle_), "mapping memory of a link");
  }
  ~UcxMapping() override { context_->ucx.mem_unmap(context_->handle, handle_); }
  ucp_mem_h handle() const { return handle_; }

 private:
  std::shared_ptr<UcxContext> context_;
  ucp_mem_h handle_ = nullptr;
};

}  // namespace

UcxEndpoint::UcxEndpoint(Sink& sink, std::shared_ptr<UcxWorker> worker)
    : Endpoint(sink),
      worker_(std::move(worker)),
      ucx_(worker_->ucx()),
      abilities_{.ordered = false, .runs_from = kLongBytes, .least_direct = kZeroCopyBytes} {
  protocol::fill_random(protocol::writable_bytes_of(key_));
  worker_->add(key_, *this);
}

UcxEndpoint::~UcxEndpoint() {
  close(false);
  worker_->remove(key_, *this);
  for (Request* const r : requests_) {
    r->endpoint = nullptr;
    worker_->keep(std::shared_ptr<Request>(r));
  }
}

std::string UcxEndpoint::carrier() const {
  return carriers_.empty() ? "ucx" : fmt::format("ucx ({})", carriers_);
}

std::shared_ptr<MemoryRegion> UcxEndpoint::register_ring(std::byte* memory, std::size_t bytes) {
  return std::make_shared<UcxMapping>(worker_->context(), memory, bytes);
}

// --- The connection ------------------------------------------------------------------------------

std::vector<std::byte> UcxEndpoint::address() {
  const std::vector<std::byte>& address = worker_->address();
  std::vector<std::byte> bytes(sizeof key_ + address.size());
  std::memcpy(bytes.data(), &key_, sizeof key_);
  std::memcpy(bytes.data() + sizeof key_, address.data(), address.size());
  return bytes;
}

void UcxEndpoint::connect(std::span<const std::byte> address) {
  if (ep_ != nullptr || address.size() <= sizeof peer_key_) {
    return fail(kNonsense);
  }
  std::memcpy(&peer_key_, address.data(), sizeof peer_key_);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data() + sizeof peer_key_);
  // The control stream knows whether the peer lives. If UCX had to promise to notice that, it could
  // not use shared memory, nor put into the peer's memory over TCP, which is twice as fast as its
  // other way (1.13; openucx/ucx#11929). It still reports the errors that it notices by itself.
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {&UcxEndpoint::on_error, worker_.get()};
  const ucs_status_t status = ucx_.ep_create(worker_->handle(), &params, &ep_);
  if (status != UCS_OK) {
    ep_ = nullptr;
    return fail(
        fmt::format("UCX does not reach it: {}; TUTTI_UCX_TLS and TUTTI_UCX_NET_DEVICES say "
                    "what it may use",
                    ucx_.text(status)));
  }
  carriers_ = ucx_carriers(ucx_, ep_);
  over_tcp_ = carriers_ == "tcp";
  if (over_tcp_) abilities_.runs_from = kLongBytesOverTcp;
  log().debug("UCX: messages go over {}", carriers_.empty() ? "?" : carriers_);
}

void UcxEndpoint::on_error(void* worker, ucp_ep_h ep, ucs_status_t status) {
  static_cast<UcxWorker*>(worker)->for_all([&](UcxEndpoint& e) {
    if (e.ep_ == ep) e.fail(fmt::format("UCX: {}", e.ucx_.text(status)));
  });
}

void UcxEndpoint::close(bool in_peace) {
  if (ep_ == nullptr) return;
  const ucp_ep_h ep = std::exchange(ep_, nullptr);
  // A peer that is gone, or may be, would be waited for: that endpoint goes with the worker.
  if (failed_ || !in_peace) {
    if (!is_made_) worker_->outlive();
    return;
  }
  const ucp_request_param_t params{};
  worker_->keep_closing(ucx_.ep_close_nbx(ep, &params));
}

bool UcxEndpoint::uses_users_memory() const {
  return std::ranges::any_of(requests_, [](const Request* r) { return r->of_user; });
}

void UcxEndpoint::drain(bool hard) {
  // To and from a peer that has died nothing goes any more. With a living peer, all that is on its
  // way still does, and soon: a peer that was waited for in vain is not waited for again.
  const auto end = std::chrono::steady_clock::now() + kLastMessages;
  while (!late_ && uses_users_memory()) {
    worker_->progress();
    late_ = std::chrono::steady_clock::now() > end;
  }
  if (hard && uses_users_memory()) worker_->rest();
}

// --- What UCX is at ------------------------------------------------------------------------------

UcxEndpoint::Request* UcxEndpoint::new_request() {
  std::unique_ptr<Request> r;
  if (spare_.empty()) {
    r = std::make_unique<Request>();
  } else {
    r = std::move(spare_.back());
    spare_.pop_back();
  }
  r->endpoint = this;
  r->worker = worker_.get();
  r->index = requests_.size();
  requests_.push_back(r.get());
  return r.release();
}

void UcxEndpoint::end(Request* r) {
  if (r->calling) {
    r->ended = true;
    return;
  }
  UcxEndpoint* const e = r->endpoint;
  if (e == nullptr) return r->worker->release(r);
  e->is_made_ = true;
  std::unique_ptr<Request> owned(r);
  e->requests_.back()->index = r->index;
  e->requests_[r->index] = e->requests_.back();
  e->requests_.pop_back();
  if (r->is_long) {
    --e->long_;
    if (std::exchange(e->wants_room_, false)) e->worker_->has_room_soon(*e);
  }
  r->keeps.reset();
  r->put = 0;
  r->of_user = r->ended = r->is_long = false;
  if (e->spare_.size() < kSpareRequests) e->spare_.push_back(std::move(owned));
}

template <class Call>
bool UcxEndpoint::start(Request* r, const MemoryRegion* region, ucp_request_param_t params,
                        Call&& call) {
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = r;
  if (region != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.memh = static_cast<const UcxMapping*>(region)->handle();
  }
  // UCX may call back before it returns.
  r->calling = true;
  const ucs_status_ptr_t request = call(params);
  r->calling = false;
  const bool under_way = UCS_PTR_IS_PTR(request);
  if (r->ended || !under_way) end(r);
  if (UCS_PTR_IS_ERR(request)) fail(fmt::format("UCX: {}", ucx_.text(UCS_PTR_STATUS(request))));
  return under_way;
}

std::uint64_t UcxEndpoint::completed() const {
  std::uint64_t completed = appended_;
  for (const Request* const r : requests_) {
    if (r->put != 0) completed = std::min(completed, r->put - 1);
  }
  return completed;
}

// --- Sending -------------------------------------------------------------------------------------

Endpoint::Room UcxEndpoint::room(std::size_t bytes) {
  if (ep_ == nullptr || failed_) return Room::none;
  if (bytes < abilities_.runs_from || long_ < kLongUnderWay) return Room::yes;
  wants_room_ = true;
  return Room::not_for_long;
}

void UcxEndpoint::put(const Put& p) {
  Request* const r = new_request();
  r->head.header = p.header;
  r->keeps = p.keeps;
  r->of_user = p.keeps == nullptr;
  r->put = ++appended_;
  r->is_long = p.header.bytes >= abilities_.runs_from;
  long_ += r->is_long ? 1 : 0;
  // A short payload lies in the link's slot; so it stays where it is, too.
  send(r, p.payload, p.header.total_bytes(), p.region);
}

bool UcxEndpoint::send(const MessageHeader& header, const void* control) {
  if (ep_ == nullptr || failed_) return false;
  Request* const r = new_request();
  r->head.header = header;
  std::memcpy(r->control.data(), control, header.bytes);
  send(r, r->control.data(), header.bytes, nullptr);
  return true;
}

void UcxEndpoint::send(Request* r, const void* data, std::size_t bytes,
                       const MemoryRegion* region) {
  ucp_request_param_t params{};
  params.cb.send = &UcxEndpoint::on_sent;
  if (over_tcp_ && !r->is_long) {
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
  }
  r->head.key = peer_key_;
  start(r, region, params, [&](const ucp_request_param_t& p) {
    return ucx_.am_send_nbx(ep_, kMessageId, &r->head, sizeof r->head, data, bytes, &p);
  });
}

void UcxEndpoint::on_sent(void* request, ucs_status_t status, void* user) {
  auto* const r = static_cast<Request*>(user);
  UcxLibrary::get().request_free(request);
  if (UcxEndpoint* const e = r->endpoint; e != nullptr && status != UCS_OK) {
    e->fail(fmt::format("UCX: {}", e->ucx_.text(status)));
  }
  end(r);
}

// --- Receiving -----------------------------------------------------------------------------------

void UcxEndpoint::poll() { worker_->progress(); }

ucs_status_t UcxEndpoint::on_message(void* worker, const void* head, std::size_t head_bytes,
                                     void* data, std::size_t bytes,
                                     const ucp_am_recv_param_t* param) {
  Keyed h;
  if (head_bytes != sizeof h) return UCS_OK;
  std::memcpy(&h, head, sizeof h);
  UcxEndpoint* const e = static_cast<UcxWorker*>(worker)->find(h.key);
  if (e == nullptr || e->failed_) return UCS_OK;  // a stranger's, or too late
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  e->is_made_ = true;
  bool taken = false;
  if (!e->take(h.header, data, bytes, rendezvous, taken)) e->fail(kNonsense);
  return taken ? UCS_INPROGRESS : UCS_OK;
}

bool UcxEndpoint::take(const MessageHeader& h, void* data, std::size_t bytes, bool rendezvous,
                       bool& taken) {
  if (h.total_bytes() != bytes) return false;
  if (h.kind == MessageHeader::control) {
    worker_->has_room_soon(*this);  // it may have an answer to that
    return !rendezvous && sink_.on_control(h, static_cast<const std::byte*>(data)) != Heard::wrong;
  }
  Sink::Target target = sink_.on_header(h);
  if (!target.known || h.kind != MessageHeader::message) return false;
  if (!rendezvous || target.to == nullptr) {
    if (target.to != nullptr && bytes > 0) std::memcpy(target.to, data, bytes);
    return sink_.on_message(h) != Heard::wrong;
  }
  Request* const r = new_request();
  r->head.header = h;
  r->of_user = target.keeps == nullptr;
  r->keeps = std::move(target.keeps);
  ucp_request_param_t params{};
  params.cb.recv_am = &UcxEndpoint::on_received;
  taken = true;
  const bool under_way = start(r, target.region, params, [&](const ucp_request_param_t& p) {
    return ucx_.am_recv_data_nbx(worker_->handle(), data, target.to, bytes, &p);
  });
  return under_way || failed_ || sink_.on_message(h) != Heard::wrong;
}

void UcxEndpoint::on_received(void* request, ucs_status_t status, std::size_t, void* user) {
  auto* const r = static_cast<Request*>(user);
  UcxLibrary::get().request_free(request);
  if (UcxEndpoint* const e = r->endpoint; e != nullptr && !e->failed_) {
    if (status != UCS_OK) {
      e->fail(fmt::format("UCX: {}", e->ucx_.text(status)));
    } else if (e->sink_.on_message(r->head.header) == Heard::wrong) {
      e->fail(kNonsense);
    }
  }
  end(r);
}

}  // namespace tutti
