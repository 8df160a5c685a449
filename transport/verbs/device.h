// An RDMA device that is open, at one of its ports: the owner of everything that is made on it, and
// a thread that listens to the device's events.
//
// Only events tell that the device is broken, that a queue pair is, or that a completion queue has
// run over (its completions are then lost without any other sign).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "transport/sockets/socket.h"
#include "transport/verbs/ports.h"

namespace tutti {

/// What a queue pair or completion queue, or their device, has suffered. An ibv_event_type, or
/// none. The device's thread sets it, once; the user of the object looks.
class VerbsMisfortune {
 public:
  static constexpr int kNone = -1;
  int event() const { return event_.load(std::memory_order_relaxed); }
  void set(int event) {
    int none = kNone;
    event_.compare_exchange_strong(none, event, std::memory_order_relaxed);
  }

 private:
  std::atomic<int> event_{kNone};
};

class VerbsDevice {
 public:
  /// Throws Error(system), naming device and reason; Error(invalid_usage) for a port that cannot be
  /// used.
  static std::shared_ptr<VerbsDevice> open(const VerbsPort& port);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const VerbsPort& port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  /// Of the device as a whole. Queue pairs and completion queues have their own: what is made here
  /// has its VerbsMisfortune as its context (qp_context, cq_context), or null.
  const VerbsMisfortune& misfortune() const { return misfortune_; }
  /// False in a child of the process that opened it, which must not touch any of it.
  bool is_ours() const;

 private:
  explicit VerbsDevice(const VerbsPort& port);
  void listen();
  void take(const ibv_async_event& event);

  struct CloseContext {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
  };
  struct FreeDomain {
    void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  };
  VerbsPort port_;
  std::unique_ptr<ibv_context, CloseContext> context_;
  std::unique_ptr<ibv_pd, FreeDomain> domain_;
  VerbsMisfortune misfortune_;
  std::uint32_t generation_;
  FileDescriptor stop_;  // an eventfd: the thread ends
  std::thread listener_;
};

/// The name of `event`, for an error's text.
std::string verbs_event_text(int event);

/// Throws Error(system): "what on DEVICE: reason", and for ENOMEM what to do about `ulimit -l`.
[[noreturn]] void throw_verbs_error(const VerbsPort& port, const std::string& what,
                                    int error_number);

}  // namespace tutti
