// An endpoint over UCX: each message is an active message with our header. A short message comes
// with its payload, which is copied to its place. UCX brings the payload of a long message straight
// there (rendezvous).
//
// UCX cannot be stopped in the middle. So a rank that wants memory back waits until UCX has
// finished with it, and where the peer does not come, the worker rests for good.
//
// UCX is fast with long messages only: it exchanges a few short ones with every message, and over
// TCP it takes as long for 1 MiB as for 6 x 64 KiB, a slot each. So when two long messages are
// under way, the next one waits, and the wire takes along what has been published behind it
// meanwhile (MessageHeader::more).
//
// UCX keeps no order between messages.
//
// A message finds its endpoint by a key that the receiver has given over the control stream. The
// control stream proves the identity of its other end; UCX itself proves nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/network/endpoint.h"
#include "transport/ucx/worker.h"

namespace tutti {

class UcxEndpoint final : public Endpoint {
 public:
  static constexpr unsigned kMessageId = 1;

  UcxEndpoint(Sink& sink, std::shared_ptr<UcxWorker> worker);
  ~UcxEndpoint() override;

  const Abilities& abilities() const override { return abilities_; }
  std::string carrier() const override;
  std::vector<std::byte> address() override;
  void connect(std::span<const std::byte> address) override;
  std::shared_ptr<MemoryRegion> register_ring(std::byte* memory, std::size_t bytes) override;

  Room room(std::size_t bytes) override;
  void put(const Put& put) override;
  bool send(const MessageHeader& header, const void* control) override;
  bool submit() override { return false; }
  void poll() override;
  std::uint64_t appended() const override { return appended_; }
  std::uint64_t completed() const override;
  bool is_flushed() override { return requests_.empty(); }
  void drain(bool hard) override;
  void close(bool in_peace) override;

  // The worker's, with the lock held:
  using Endpoint::fail;
  /// UCX has room again, which this endpoint has waited for.
  void has_room() { sink_.on_room(); }
  ucp_ep_h handle() const { return ep_; }
  /// UCX's callback; `worker` owns it.
  static ucs_status_t on_message(void* worker, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_error(void* worker, ucp_ep_h ep, ucs_status_t status);

 private:
  /// In front of every message.
  struct Keyed {
    std::uint64_t key = 0;
    MessageHeader header;
  };
  /// What UCX is at. It outlives its endpoint where UCX has not finished by then.
  struct Request {
    UcxEndpoint* endpoint = nullptr;  // null: it is gone
    UcxWorker* worker = nullptr;      // owns it then
    Keyed head;
    std::array<std::byte, kMostControl> control;
    std::shared_ptr<void> keeps;  // memory of a link that is read or written
    std::uint64_t put = 0;        // its number; 0: it is none
    bool of_user = false;         // reads or writes a user's memory
    bool is_long = false;         // sends a long message
    bool calling = false, ended = false;
    std::size_t index = 0;  // among the endpoint's
  };

  Request* new_request();
  /// Has UCX do `call`. True: UCX will tell `r`'s callback; false: it is done.
  template <class Call>
  bool start(Request* r, const MemoryRegion* region, ucp_request_param_t params, Call&& call);
  void send(Request* r, const void* data, std::size_t bytes, const MemoryRegion* region);
  static void end(Request* r);
  /// False: the peer has sent what cannot be. `taken`: UCX brings the data later.
  bool take(const MessageHeader& header, void* data, std::size_t bytes, bool rendezvous,
            bool& taken);
  bool uses_users_memory() const;
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_received(void* request, ucs_status_t status, std::size_t bytes, void* user);

  const std::shared_ptr<UcxWorker> worker_;
  const UcxLibrary& ucx_;
  Abilities abilities_;
  std::uint64_t key_ = 0, peer_key_ = 0;
  ucp_ep_h ep_ = nullptr;
  std::string carriers_;  // UCX's transports to the peer, as far as is known
  bool over_tcp_ = false;
  bool is_made_ = false;  // something has gone over it, or come
  std::uint64_t appended_ = 0;
  std::vector<Request*> requests_;  // that UCX has not finished
  std::size_t long_ = 0;            // of those, that send a long message
  bool late_ = false;               // the peer did not let go of users' memory in time
  bool wants_room_ = false;
  std::vector<std::unique_ptr<Request>> spare_;
};

}  // namespace tutti
