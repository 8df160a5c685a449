#include "transport/verbs/queue_pair.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/settings.h"
#include "transport/verbs/gid.h"

namespace tutti {
namespace {

// Tutti neither reads nor uses atomics over RDMA; hardware wants at least one nevertheless.
constexpr std::uint8_t kReads = 1;
// Inline data up to a slot's header.
constexpr std::uint32_t kInline = 64;
// 0.08 ms, before a peer that had no receive request for a notice is tried again.
constexpr std::uint8_t kNotReadyTimer = 6;

ibv_mtu mtu_of(int bytes) {
  int code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && (128 << (code + 1)) <= bytes) ++code;
  return static_cast<ibv_mtu>(code);
}

std::uint32_t random_packet() { return std::random_device{}() & 0xffffff; }

}  // namespace

VerbsOptions VerbsOptions::from_settings() {
  VerbsOptions options;
  options.timeout = static_cast<int>(setting_integer("TUTTI_VERBS_TIMEOUT"));
  options.retries = static_cast<int>(setting_integer("TUTTI_VERBS_RETRY"));
  options.service_level = static_cast<int>(setting_integer("TUTTI_VERBS_SERVICE_LEVEL"));
  options.traffic_class = static_cast<int>(setting_integer("TUTTI_VERBS_TRAFFIC_CLASS"));
  return options;
}

VerbsQueuePair::VerbsQueuePair(std::shared_ptr<VerbsDevice> device, const VerbsOptions& options)
    : device_(std::move(device)), options_(options) {
  const VerbsPort& port = device_->port();
  // A completion queue that runs over loses completions without a word, so it has room for one of
  // each request that can be posted.
  const std::size_t most =
      std::min(port.most_requests, port.most_completions > 1 ? port.most_completions / 2 : 0);
  options_.send_depth = static_cast<std::uint32_t>(std::min<std::size_t>(most, options.send_depth));
  options_.receive_depth =
      static_cast<std::uint32_t>(std::min<std::size_t>(most, options.receive_depth));
  channel_.reset(ibv_create_comp_channel(device_->context()));
  if (channel_ == nullptr) throw_verbs_error(port, "ibv_create_comp_channel", errno);
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw_verbs_error(port, "its completion events cannot be read", errno);
  }
  const auto entries = static_cast<int>(options_.send_depth + options_.receive_depth);
  completions_.reset(ibv_create_cq(device_->context(), entries, &queue_, channel_.get(), 0));
  if (completions_ == nullptr) {
    throw_verbs_error(port, fmt::format("making a completion queue of {} entries", entries), errno);
  }

  ibv_qp_init_attr wanted{};
  wanted.qp_context = &own_;
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = options_.send_depth;
  wanted.cap.max_recv_wr = options_.receive_depth;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = kInline;
  pair_.reset(ibv_create_qp(device_->domain(), &wanted));
  if (pair_ == nullptr) {  // not every device takes 64 bytes inline
    wanted.cap.max_inline_data = 0;
    pair_.reset(ibv_create_qp(device_->domain(), &wanted));
  }
  if (pair_ == nullptr) {
    throw_verbs_error(port,
                      fmt::format("making a queue pair of {} send and {} receive requests",
                                  options_.send_depth, options_.receive_depth),
                      errno);
  }
  inline_bytes_ = wanted.cap.max_inline_data;

  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.pkey_index = 0;
  init.port_num = static_cast<std::uint8_t>(port.port);
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
         "making a queue pair (INIT)");

  address_.number = pair_->qp_num;
  address_.first_packet = random_packet();
  address_.lid = port.lid;
  address_.mtu = static_cast<std::uint16_t>(port.mtu);
  address_.ethernet = port.ethernet ? 1 : 0;
  address_.most_reads = kReads;
  address_.gid = port.gid;
}

VerbsQueuePair::~VerbsQueuePair() {
  if (!device_->is_ours()) {  // a child: all of it is the parent's
    static_cast<void>(pair_.release());
    static_cast<void>(completions_.release());
    static_cast<void>(channel_.release());
    return;
  }
  // Events that were not acknowledged would hold the queue's destruction up for ever.
  if (completions_ != nullptr) ibv_ack_cq_events(completions_.get(), unacknowledged_);
}

void VerbsQueuePair::connect(const VerbsAddress& peer) {
  const VerbsPort& port = device_->port();
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::mismatch,
                fmt::format("the RDMA device {}: the peer's address {}", port.device, why));
  };
  if (peer.magic != VerbsAddress::kMagic) {
    refuse("is none of this version of Tutti; all ranks must run the same");
  }
  if (peer.number > 0xffffff || peer.first_packet > 0xffffff || peer.mtu < 256 || peer.mtu > 4096 ||
      peer.ethernet > 1) {
    refuse(fmt::format("is damaged (queue pair {}, packet {}, MTU {})", peer.number,
                       peer.first_packet, peer.mtu));
  }
  if ((peer.ethernet != 0) != port.ethernet) {
    refuse(fmt::format("is one of {}, and this port's of {}; TUTTI_VERBS_DEVICES chooses devices",
                       peer.ethernet != 0 ? "Ethernet (RoCE)" : "InfiniBand",
                       port.ethernet ? "Ethernet (RoCE)" : "InfiniBand"));
  }

  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = mtu_of(std::min<int>(port.mtu, peer.mtu));
  rtr.dest_qp_num = peer.number;
  rtr.rq_psn = peer.first_packet;
  rtr.max_dest_rd_atomic = kReads;
  rtr.min_rnr_timer = kNotReadyTimer;
  rtr.ah_attr.port_num = static_cast<std::uint8_t>(port.port);
  rtr.ah_attr.sl = static_cast<std::uint8_t>(options_.service_level);
  rtr.ah_attr.dlid = peer.lid;
  // On InfiniBand the first 8 bytes of a GID say which subnet; a router needs them.
  const bool same_subnet = std::equal(peer.gid.begin(), peer.gid.begin() + 8, port.gid.begin());
  if (port.ethernet || !same_subnet) {
    rtr.ah_attr.is_global = 1;
    std::memcpy(rtr.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    rtr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
    rtr.ah_attr.grh.hop_limit = 255;
    rtr.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options_.traffic_class);
  }
  modify(rtr,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "connecting a queue pair (RTR)");

  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = static_cast<std::uint8_t>(options_.timeout);
  rts.retry_cnt = static_cast<std::uint8_t>(options_.retries);
  rts.rnr_retry = 7;  // for ever: a peer that has no receive request is slow, not dead
  rts.sq_psn = address_.first_packet;
  rts.max_rd_atomic = std::min(kReads, peer.most_reads);
  modify(rts,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "connecting a queue pair (RTS)");
}

void VerbsQueuePair::stop() {
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  modify(error, IBV_QP_STATE, "stopping a queue pair");
}

void VerbsQueuePair::modify(ibv_qp_attr attributes, int mask, const char* what) {
  const int error = ibv_modify_qp(pair_.get(), &attributes, mask);
  if (error != 0) throw_verbs_error(device_->port(), what, error);
}

void VerbsQueuePair::send(ibv_send_wr* first) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair_.get(), first, &bad);
  if (error != 0) throw_verbs_error(device_->port(), "posting a write", error);
}

void VerbsQueuePair::receive(ibv_recv_wr* first) {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(pair_.get(), first, &bad);
  if (error != 0) throw_verbs_error(device_->port(), "posting a receive request", error);
}

std::span<const ibv_wc> VerbsQueuePair::poll(std::span<ibv_wc> room) {
  const int count = ibv_poll_cq(completions_.get(), static_cast<int>(room.size()), room.data());
  if (count < 0) throw_verbs_error(device_->port(), "polling for completions", EIO);
  return room.first(static_cast<std::size_t>(count));
}

int VerbsQueuePair::event() const {
  for (const VerbsMisfortune* m : {&own_, &queue_, &device_->misfortune()}) {
    if (m->event() != VerbsMisfortune::kNone) return m->event();
  }
  return VerbsMisfortune::kNone;
}

void VerbsQueuePair::arm() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ++unacknowledged_;
  if (unacknowledged_ > 1000) {  // it takes a lock, so seldom
    ibv_ack_cq_events(completions_.get(), unacknowledged_);
    unacknowledged_ = 0;
  }
  const int error = ibv_req_notify_cq(completions_.get(), 0);
  if (error != 0) throw_verbs_error(device_->port(), "asking for completion events", error);
}

}  // namespace tutti
