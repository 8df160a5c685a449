// A rank's UCX: one context, one worker, and what its endpoints have in common. One thread at a
// time uses UCX, under a lock that all wires over its endpoints share: a message that the worker
// brings may be for any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/network/endpoint.h"
#include "transport/ucx/library.h"

namespace tutti {

class UcxEndpoint;

/// What memory is mapped for.
class UcxContext {
 public:
  UcxContext();
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  const UcxLibrary& ucx;
  ucp_context_h handle = nullptr;
};

class UcxWorker final : public EndpointMaker, public std::enable_shared_from_this<UcxWorker> {
 public:
  /// Throws Error(system).
  UcxWorker();
  ~UcxWorker() override;

  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int peer, int port) override;
  std::mutex* lock() override { return &mutex_; }
  int descriptor() const override { return fd_; }
  bool arm() override;

  const UcxLibrary& ucx() const { return context_->ucx; }
  const std::shared_ptr<UcxContext>& context() const { return context_; }
  const std::vector<std::byte>& address() const { return address_; }
  ucp_worker_h handle() const { return handle_; }

  // With the lock held:
  /// Takes in what has come, for all endpoints.
  void progress();
  /// Messages that say `key` are for `endpoint`.
  void add(std::uint64_t key, UcxEndpoint& endpoint) { endpoints_[key] = &endpoint; }
  void remove(std::uint64_t key, UcxEndpoint& endpoint);
  UcxEndpoint* find(std::uint64_t key) const;
  template <class Call>
  void for_all(Call&& call) {
    for (const auto& [key, endpoint] : endpoints_) call(*endpoint);
  }
  /// Tells `endpoint` that it has room, when UCX is not in a callback.
  void has_room_soon(UcxEndpoint& endpoint) { with_room_.push_back(&endpoint); }
  /// What UCX still uses after the endpoint that it was for, and perhaps for ever, as a peer has
  /// died: until it says, or goes.
  void keep(std::shared_ptr<void> what) { kept_[what.get()] = std::move(what); }
  void release(void* what) { kept_.erase(what); }
  /// Does nothing any more, for any endpoint: so memory that it was to write stays as it is.
  void rest();
  /// `request` ends a connection; it is looked after here.
  void keep_closing(ucs_status_ptr_t request);
  /// One of its connections ends before it is made. UCX 1.13 ends the process where it then
  /// destroys a worker whose first message to a peer still waits (ucp_request.c:684); so this one's
  /// stays.
  void outlive() { outlives_ = true; }

 private:
  std::shared_ptr<UcxContext> context_;
  std::mutex mutex_;
  ucp_worker_h handle_ = nullptr;
  int fd_ = -1;
  std::vector<std::byte> address_;
  std::unordered_map<std::uint64_t, UcxEndpoint*> endpoints_;
  std::vector<UcxEndpoint*> with_room_;
  std::vector<ucs_status_ptr_t> closing_;
  bool outlives_ = false;
  std::unordered_map<void*, std::shared_ptr<void>> kept_;
  bool rests_ = false;
};

}  // namespace tutti
