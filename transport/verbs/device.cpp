#include "transport/verbs/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/fork.h"
#include "core/log.h"

namespace tutti {
namespace {

/// Before a process registers memory for the first time, the library has to know that it may fork;
/// since Linux 5.12 or so the kernel copies such pages at fork, and nothing is needed.
void prepare_for_forks() {
  static const int error = [] {
    return ibv_is_fork_initialized() == IBV_FORK_DISABLED ? ibv_fork_init() : 0;
  }();
  if (error != 0) {
    log().warn(
        "verbs: ibv_fork_init: {}; memory that devices use may be damaged where the process forks",
        std::generic_category().message(error));
  }
}

ibv_context* open_context(const VerbsPort& port) {
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(ibv_get_device_list(nullptr),
                                                                     ibv_free_device_list);
  for (ibv_device** device = devices.get(); device != nullptr && *device != nullptr; ++device) {
    if (port.device != ibv_get_device_name(*device)) continue;
    if (ibv_context* const context = ibv_open_device(*device)) return context;
    throw_verbs_error(port, "cannot be opened", errno);
  }
  throw_verbs_error(port, "is not there any more", ENODEV);
}

}  // namespace

std::shared_ptr<VerbsDevice> VerbsDevice::open(const VerbsPort& port) {
  if (!port.objection.empty()) throw Error(ErrorCode::invalid_usage, describe(port));
  return std::shared_ptr<VerbsDevice>(new VerbsDevice(port));
}

VerbsDevice::VerbsDevice(const VerbsPort& port) : port_(port), generation_(process_generation()) {
  prepare_for_forks();
  occupy_standard_descriptors();
  context_.reset(open_context(port));
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) throw_verbs_error(port_, "ibv_alloc_pd", errno);
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  const int flags = fcntl(context_->async_fd, F_GETFL);
  if (!stop_ || flags < 0 || fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw_verbs_error(port_, "its events cannot be read", errno);
  }
  // Signals are for the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    listener_ = std::thread([this] { listen(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

VerbsDevice::~VerbsDevice() {
  if (!is_ours()) {  // a child: no thread, and the device is the parent's
    abandon(std::make_shared<std::thread>(std::move(listener_)));
    static_cast<void>(domain_.release());
    static_cast<void>(context_.release());
    return;
  }
  const std::uint64_t one = 1;
  while (write(stop_.fd(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  listener_.join();
}

bool VerbsDevice::is_ours() const { return generation_ == process_generation(); }

void VerbsDevice::listen() {
  pollfd files[] = {{context_->async_fd, POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  while (files[1].revents == 0) {
    if (poll(files, 2, -1) < 0 && errno != EINTR) return;
    ibv_async_event event;
    while (ibv_get_async_event(context_.get(), &event) == 0) {
      take(event);
      // Last: until then the object that it is about cannot be destroyed.
      ibv_ack_async_event(&event);
    }
  }
}

void VerbsDevice::take(const ibv_async_event& event) {
  const auto strike = [&](void* context) {
    if (context != nullptr) static_cast<VerbsMisfortune*>(context)->set(event.event_type);
  };
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return strike(event.element.cq->cq_context);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      return strike(event.element.qp->qp_context);
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_WQ_FATAL:
      misfortune_.set(event.event_type);
      log().error("verbs: {} is broken ({})", port_.device, verbs_event_text(event.event_type));
      return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
      // A link that is back soon harms nothing; one that is not ends requests, with an error.
      if (event.element.port_num == port_.port) {
        log().warn("verbs: {} port {}: {}", port_.device, port_.port,
                   verbs_event_text(event.event_type));
      }
      return;
    default:
      return;
  }
}

std::string verbs_event_text(int event) {
  return ibv_event_type_str(static_cast<ibv_event_type>(event));
}

void throw_verbs_error(const VerbsPort& port, const std::string& what, int error_number) {
  std::string text = fmt::format("the RDMA device {}: {}: {}", port.device, what,
                                 std::generic_category().message(error_number));
  if (error_number == ENOMEM) {
    text +=
        "; often the limit of locked memory: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a "
        "service, --ulimit memlock=-1 of a container)";
  }
  throw Error(ErrorCode::system, text);
}

}  // namespace tutti
