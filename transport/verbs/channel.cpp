#include "transport/verbs/channel.h"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

namespace tutti {
namespace {

// Of a long message; devices take up to 2 GiB at a time, rdma_rxe 8 MiB.
constexpr std::size_t kMostPiece = std::size_t{1} << 30;

constexpr unsigned kKindShift = 56;
constexpr std::uint64_t kNumber = (std::uint64_t{1} << kKindShift) - 1;

// Requests that write() and send() leave free, for the marker.
constexpr std::uint32_t kKeptFree = 1;

}  // namespace

VerbsChannel::VerbsChannel(std::shared_ptr<VerbsDevice> device, int peer,
                           const VerbsOptions& options)
    : peer_(peer), device_(std::move(device)), pair_(device_, options) {
  const VerbsOptions& got = pair_.options();
  if (got.send_depth < 8 || got.receive_depth < 1) {
    fail(ErrorCode::system,
         fmt::format("its queues are too short, of {} and {}", got.send_depth, got.receive_depth));
    throw Error(*failure_);
  }
  buffers_.resize((got.send_depth + got.receive_depth) * kMostMessage);
  buffer_region_ = std::make_unique<VerbsMemory>(device_, buffers_.data(), buffers_.size());
  batch_.reserve(got.send_depth);
  pieces_.reserve(got.send_depth);
  receives_.resize(got.receive_depth);
  receive_pieces_.resize(got.receive_depth);
  used_.resize(got.receive_depth);
  std::iota(used_.begin(), used_.end(), std::uint32_t{0});
  post_receives(used_);
  used_.clear();
}

// --- Sending -------------------------------------------------------------------------------------

std::size_t VerbsChannel::piece_bytes() const {
  return std::min(kMostPiece, device_->port().most_bytes);
}

std::size_t VerbsChannel::most_bytes() const {
  return piece_bytes() * (pair_.options().send_depth - kKeptFree - 1);
}

std::uint32_t VerbsChannel::free_requests() const {
  const auto used = static_cast<std::uint32_t>(appended_ - completed_);
  return pair_.options().send_depth - kKeptFree - used;
}

std::byte* VerbsChannel::send_buffer(std::uint64_t index) {
  const VerbsOptions& depth = pair_.options();
  return buffers_.data() + (depth.receive_depth + index % depth.send_depth) * kMostMessage;
}

bool VerbsChannel::has_room(std::size_t bytes, std::size_t messages) const {
  const std::size_t piece = piece_bytes();
  return (bytes + piece - 1) / piece + messages <= free_requests();
}

void VerbsChannel::write(const VerbsWrite& data, std::optional<std::uint32_t> notice) {
  if (failure_) throw Error(*failure_);
  const std::size_t piece = piece_bytes();
  std::size_t done = 0;
  do {
    const std::size_t bytes = std::min(piece, data.bytes - done);
    const bool notices = notice && done + bytes == data.bytes;
    ibv_send_wr& request =
        append(notices ? kNotice : kWrite, notices ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
               static_cast<const std::byte*>(data.from) + done, bytes, data.local_key);
    if (data.is_of_device) request.send_flags &= ~unsigned{IBV_SEND_INLINE};
    request.wr.rdma.remote_addr = data.to + done;
    request.wr.rdma.rkey = data.remote_key;
    if (notices) request.imm_data = htobe32(*notice);
    done += bytes;
  } while (done < data.bytes);
}

void VerbsChannel::report() {
  if (batch_.empty()) return;
  batch_.back().send_flags |= IBV_SEND_SIGNALED;
  signalled_ = appended_;
}

void VerbsChannel::send(std::span<const std::byte> message) {
  if (failure_) throw Error(*failure_);
  if (message.empty() || message.size() > kMostMessage) {
    throw Error(ErrorCode::internal, fmt::format("a message of {} bytes", message.size()), peer_);
  }
  // As many buffers as requests, so this one's is free.
  std::byte* const buffer = send_buffer(appended_);
  std::memcpy(buffer, message.data(), message.size());
  append(kMessage, IBV_WR_SEND, buffer, message.size(), buffer_region_->local_key());
}

ibv_send_wr& VerbsChannel::append(Kind kind, ibv_wr_opcode opcode, const void* from,
                                  std::size_t bytes, std::uint32_t local_key) {
  ibv_sge& piece = pieces_.emplace_back();
  piece.addr = reinterpret_cast<std::uintptr_t>(from);
  piece.length = static_cast<std::uint32_t>(bytes);
  piece.lkey = local_key;
  ibv_send_wr& request = batch_.emplace_back();
  request.wr_id = (static_cast<std::uint64_t>(kind) << kKindShift) | ++appended_;
  request.sg_list = &piece;
  request.num_sge = bytes > 0 ? 1 : 0;
  request.opcode = opcode;
  if (bytes > 0 && bytes <= pair_.inline_bytes()) request.send_flags = IBV_SEND_INLINE;
  // Each completion costs both the device and the processor a little.
  if (kind == kMarker || appended_ - signalled_ >= pair_.options().send_depth / 8) {
    request.send_flags |= IBV_SEND_SIGNALED;
    signalled_ = appended_;
  }
  return request;
}

void VerbsChannel::submit() {
  if (batch_.empty()) return;
  for (std::size_t i = 0; i + 1 < batch_.size(); ++i) batch_[i].next = &batch_[i + 1];
  pair_.send(batch_.data());
  submitted_ = appended_;
  batch_.clear();
  pieces_.clear();
}

void VerbsChannel::mark() {
  if (failure_) throw Error(*failure_);
  if (signalled_ != appended_ && free_requests() > 0) {
    append(kMarker, IBV_WR_RDMA_WRITE, nullptr, 0, 0);  // a write of nothing
  }
  submit();
}

// --- Receiving -----------------------------------------------------------------------------------

void VerbsChannel::post_receives(std::span<const std::uint32_t> buffers) {
  if (buffers.empty()) return;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    ibv_sge& piece = receive_pieces_[i];
    piece.addr = reinterpret_cast<std::uintptr_t>(receive_buffer(buffers[i]));
    piece.length = kMostMessage;
    piece.lkey = buffer_region_->local_key();
    ibv_recv_wr& request = receives_[i];
    request.wr_id = (static_cast<std::uint64_t>(kReceive) << kKindShift) | buffers[i];
    request.sg_list = &piece;
    request.num_sge = 1;
    request.next = i + 1 < buffers.size() ? &receives_[i + 1] : nullptr;
  }
  pair_.receive(receives_.data());
}

std::span<const VerbsEvent> VerbsChannel::poll() {
  if (failure_) throw Error(*failure_);
  events_.clear();
  if (used_.size() >= kPostAgain || used_.size() >= pair_.options().receive_depth / 2) {
    post_receives(used_);
    used_.clear();
  }
  const auto completions = pair_.poll(completions_);
  for (const ibv_wc& completion : completions) take(completion);
  if (completions.empty()) {
    if (const int event = pair_.event(); event != VerbsMisfortune::kNone) {
      fail(ErrorCode::system, "the device reports: " + verbs_event_text(event));
    }
  }
  if (events_.empty() && failure_) throw Error(*failure_);
  return events_;
}

void VerbsChannel::take(const ibv_wc& completion) {
  // The status first: of a request that failed, opcode and the like are not valid.
  if (completion.status != IBV_WC_SUCCESS) return fail(completion);
  const std::uint64_t number = completion.wr_id & kNumber;
  if (completion.wr_id >> kKindShift != kReceive) {
    completed_ = number;
    return;
  }
  if (failure_) return;
  VerbsEvent& event = events_.emplace_back();
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    event.notice = be32toh(completion.imm_data);
  } else {
    event.message = {receive_buffer(number), completion.byte_len};
  }
  used_.push_back(static_cast<std::uint32_t>(number));
}

// --- The end -------------------------------------------------------------------------------------

void VerbsChannel::fail(const ibv_wc& completion) {
  // The first that failed is the reason; those behind it are flushed.
  if (failure_) return;
  const auto kind = static_cast<Kind>(completion.wr_id >> kKindShift);
  const char* const what = kind == kReceive   ? "receiving"
                           : kind == kNotice  ? "writing with a notice"
                           : kind == kMessage ? "sending a message"
                                              : "writing";
  const std::string status = ibv_wc_status_str(completion.status);
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR: {
      const VerbsOptions& options = pair_.options();
      return fail(
          ErrorCode::peer_lost,
          fmt::format("it acknowledges nothing ({}: {}; {} tries of at least {:.0f} ms): it "
                      "died, or the network between is broken; TUTTI_VERBS_TIMEOUT and "
                      "TUTTI_VERBS_RETRY say how long to try{}",
                      what, status, options.retries + 1, std::ldexp(4.096e-3, options.timeout),
                      port_state()));
    }
    case IBV_WC_WR_FLUSH_ERR: {
      const int event = pair_.event();
      return fail(ErrorCode::system,
                  fmt::format("it was ended ({}: {}{}{})", what, status,
                              event != VerbsMisfortune::kNone ? "; the device reports: " : "",
                              event != VerbsMisfortune::kNone ? verbs_event_text(event) : ""));
    }
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return fail(ErrorCode::internal,
                  fmt::format("its device refused what came ({}: {}); this is a bug in Tutti", what,
                              status));
    default:
      return fail(ErrorCode::system, fmt::format("{} failed: {} (vendor error {:#x}){}", what,
                                                 status, completion.vendor_err, port_state()));
  }
}

void VerbsChannel::fail(ErrorCode code, const std::string& what) {
  if (failure_) return;
  failure_.emplace(code,
                   fmt::format("the RDMA connection to rank {} over {}: {}", peer_,
                               device_->port().device, what),
                   peer_);
}

std::string VerbsChannel::port_state() const {
  ibv_port_attr port{};
  const VerbsPort& known = device_->port();
  if (ibv_query_port(device_->context(), static_cast<std::uint8_t>(known.port), &port) != 0 ||
      port.state == IBV_PORT_ACTIVE) {
    return "";
  }
  return fmt::format(", and its port is {}: look at the cable, `ip link` and the switch",
                     ibv_port_state_str(port.state));
}

bool VerbsChannel::stop_and_drain(std::chrono::nanoseconds limit) {
  fail(ErrorCode::invalid_usage, "it was stopped");
  appended_ -= batch_.size();
  batch_.clear();
  pieces_.clear();
  try {
    pair_.stop();
    // In a queue pair that is stopped, requests complete as flushed, in order: so when the marker
    // does, there is nothing before it any more.
    const std::uint64_t marker = append(kMarker, IBV_WR_RDMA_WRITE, nullptr, 0, 0).wr_id;
    submit();
    const auto end = std::chrono::steady_clock::now() + limit;
    do {
      const auto completions = pair_.poll(completions_);
      for (const ibv_wc& completion : completions) {
        if (completion.wr_id == marker) return true;
      }
      if (completions.empty()) std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
  } catch (const Error&) {
    // The device is broken, or not there any more.
  }
  return false;
}

}  // namespace tutti
