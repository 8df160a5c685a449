#include "transport/ucx/worker.h"

#include <fmt/format.h>

#include <chrono>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/fork.h"
#include "core/settings.h"
#include "transport/network/wire_choice.h"
#include "transport/ucx/ucx_endpoint.h"

namespace tutti {
namespace {

// Of endpoints to peers that are gone, or may be.
constexpr auto kCloseWithin = std::chrono::milliseconds(500);

void configure(const UcxLibrary& ucx, ucp_config_t* config, const char* option,
               const char* setting) {
  const std::string value = setting_text(setting);
  if (value.empty()) return;
  if (ucx.config_modify(config, option, value.c_str()) == UCS_OK) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}={}: UCX does not understand it", setting, value));
}

}  // namespace

std::string why_no_ucx() { return UcxLibrary::missing(); }

UcxState ucx_state() {
  UcxState state{"", why_no_ucx()};
  if (!state.why_not.empty()) return state;
  state.version = UcxLibrary::get().version_string();
  try {
    const UcxContext context;
  } catch (const Error& error) {
    state.why_not = error.what();
  }
  return state;
}

std::shared_ptr<EndpointMaker> make_ucx_endpoints() { return std::make_shared<UcxWorker>(); }

UcxContext::UcxContext() : ucx(UcxLibrary::get()) {
  occupy_standard_descriptors();
  ucp_config_t* config = nullptr;
  ucx.check(ucx.config_read(nullptr, nullptr, &config), "reading its configuration");
  const std::unique_ptr<ucp_config_t, decltype(ucx.config_release)> owned(config,
                                                                          ucx.config_release);
  configure(ucx, config, "TLS", "TUTTI_UCX_TLS");
  configure(ucx, config, "NET_DEVICES", "TUTTI_UCX_NET_DEVICES");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // the thread that drops the last handle unmaps the memory
  ucx.check(ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &handle),
            "beginning (TUTTI_UCX_TLS and TUTTI_UCX_NET_DEVICES say what it may use)");
}

UcxContext::~UcxContext() { ucx.cleanup(handle); }

UcxWorker::UcxWorker() : context_(std::make_shared<UcxContext>()) {
  const UcxLibrary& u = ucx();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  u.check(u.worker_create(context_->handle, &params, &handle_), "making a worker");
  try {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    u.check(u.worker_get_address(handle_, &address, &bytes), "asking for the worker's address");
    const auto* const first = reinterpret_cast<const std::byte*>(address);
    address_.assign(first, first + bytes);
    u.worker_release_address(handle_, address);
    u.check(u.worker_get_efd(handle_, &fd_), "asking for the worker's descriptor");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = UcxEndpoint::kMessageId;
    handler.cb = &UcxEndpoint::on_message;
    handler.arg = this;
    u.check(u.set_am_recv_handler(handle_, &handler), "setting the handler of messages");
  } catch (...) {
    u.worker_destroy(handle_);
    throw;
  }
}

UcxWorker::~UcxWorker() {
  const auto end = std::chrono::steady_clock::now() + kCloseWithin;
  while (!closing_.empty() && std::chrono::steady_clock::now() < end) progress();
  for (ucs_status_ptr_t request : closing_) ucx().request_free(request);
  if (outlives_) {
    using Kept = std::pair<std::shared_ptr<UcxContext>, decltype(kept_)>;
    abandon(std::make_shared<Kept>(context_, std::move(kept_)));
  } else {
    ucx().worker_destroy(handle_);
  }
}

std::unique_ptr<Endpoint> UcxWorker::make(Endpoint::Sink& sink, int, int) {
  return std::make_unique<UcxEndpoint>(sink, shared_from_this());
}

void UcxWorker::remove(std::uint64_t key, UcxEndpoint& endpoint) {
  std::erase(with_room_, &endpoint);
  endpoints_.erase(key);
}

UcxEndpoint* UcxWorker::find(std::uint64_t key) const {
  const auto found = endpoints_.find(key);
  return found == endpoints_.end() ? nullptr : found->second;
}

void UcxWorker::keep_closing(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

void UcxWorker::rest() {
  if (std::exchange(rests_, true)) return;
  for_all(
      [](UcxEndpoint& e) { e.fail("UCX stands still: another peer did not let go of memory"); });
}

void UcxWorker::progress() {
  if (rests_) return;
  while (ucx().worker_progress(handle_) != 0) {
  }
  for (UcxEndpoint* const endpoint : std::exchange(with_room_, {})) endpoint->has_room();
  std::erase_if(closing_, [&](ucs_status_ptr_t request) {
    if (ucx().request_check_status(request) == UCS_INPROGRESS) return false;
    ucx().request_free(request);
    return true;
  });
}

bool UcxWorker::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && (rests_ || ucx().worker_arm(handle_) == UCS_OK);
}

}  // namespace tutti
