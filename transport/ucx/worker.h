// A rank's UCX: one context, one worker, and what its wires have in common. UCX is used by one
// thread at a time, under a lock that is also that of all its wires: what the worker brings is for
// any of them.
//
// As RemoteRank does for a socket, the worker has the reactor listen for what comes when nobody has
// polled for 10 ms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/reactor.h"
#include "transport/ring_memory.h"
#include "transport/ucx/library.h"
#include "transport/wire_choice.h"

namespace tutti {

class UcxWire;

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

class UcxWorker final : public WireMaker,
                        Reactor::Handler,
                        public std::enable_shared_from_this<UcxWorker> {
 public:
  /// Throws Error(system).
  UcxWorker();
  ~UcxWorker() override;

  std::unique_ptr<Wire> make(Wire::Owner& owner, int peer, int port) override;
  int prepare_to_sleep() override;
  void stop() override;

  const UcxLibrary& ucx() const { return context_->ucx; }
  const std::shared_ptr<UcxContext>& context() const { return context_; }
  const std::vector<std::byte>& address() const { return address_; }
  ucp_worker_h handle() const { return handle_; }
  std::mutex& mutex() { return mutex_; }

  // With the lock held:
  /// Takes in what has come, for all wires.
  void progress();
  /// The same, by whoever is in a call: the reactor need not.
  void poll();
  /// Messages that say `key` are for `wire`.
  void add(std::uint64_t key, UcxWire& wire) { wires_[key] = &wire; }
  void remove(std::uint64_t key);
  UcxWire* find(std::uint64_t key) const;
  template <class Call>
  void for_all(Call&& call) {
    for (const auto& [key, wire] : wires_) call(*wire);
  }
  /// Has `wire` send what it can, when UCX is not in a callback.
  void push_soon(UcxWire& wire) { to_push_.push_back(&wire); }
  /// What UCX still uses after the wire that it was for, and perhaps for ever, as a peer has died:
  /// until it says, or goes.
  void keep(std::shared_ptr<void> what) { kept_[what.get()] = std::move(what); }
  void release(void* what) { kept_.erase(what); }
  /// Does nothing any more, for any wire: so memory that it was to write stays as it is.
  void rest();
  /// `request` ends an endpoint; it is looked after here.
  void keep_closing(ucs_status_ptr_t request);

 private:
  void on_events(int fd, std::uint32_t events) override;
  std::optional<Reactor::Time> on_tick(Reactor::Time now) override;
  bool on_exit() override;

  /// Progress, and what becomes of it; tells the wires' owners. True: something is left to be sent.
  bool serve(bool listen);
  /// True: the descriptor says when something comes.
  bool arm();
  void close_down();

  std::shared_ptr<UcxContext> context_;
  std::mutex mutex_;
  ucp_worker_h handle_ = nullptr;
  int fd_ = -1;
  std::vector<std::byte> address_;
  std::unordered_map<std::uint64_t, UcxWire*> wires_;
  std::vector<UcxWire*> to_push_;
  std::vector<ucs_status_ptr_t> closing_;
  std::unordered_map<void*, std::shared_ptr<void>> kept_;
  Reactor& reactor_;
  bool polled_ = false, listening_ = false, stopped_ = false, rests_ = false;
};

}  // namespace tutti
