// The life of a group: meeting, coalescing, parts of it, its end.
#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend.h"
#include "errors.h"
#include "meet.h"
#include "python.h"
#include "window_allocator.h"

namespace tutti::pytorch {
namespace {

/// What PyTorch before 2.15 does not know.
bool enables_reconfigure([[maybe_unused]] const ::c10d::Backend::Options& options) {
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  return options.enable_reconfigure;
#else
  return false;
#endif
}

/// Of a group that is made of another one: its ranks are known.
Backend::OptionsPointer met_at_once(const Backend::OptionsPointer& options) {
  auto own = c10::make_intrusive<::c10d::Backend::Options>(*options);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  own->enable_reconfigure = false;
#endif
  return own;
}

}  // namespace

Backend::Backend(const StorePointer& store, int rank, int size, OptionsPointer options,
                 std::optional<bool> invariant)
    : ::c10d::Backend(rank, size),
      options_(std::move(options)),
      store_(store),
      invariant_(invariant) {
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  formed_ = !enables_reconfigure(*options_);
  comm_ = translated([&] {
    const tutti::Options its = options_of(options_->timeout, invariant_);
    return std::make_shared<Communicator>(formed_ ? meet(*store, rank, size, its)
                                                  : Communicator::alone(its));
  });
  init();
}

Backend::Backend(const StorePointer& store, Communicator comm, OptionsPointer options,
                 std::optional<bool> invariant)
    : ::c10d::Backend(comm.rank(), comm.size()),
      options_(std::move(options)),
      store_(store),
      invariant_(invariant),
      comm_(std::make_shared<Communicator>(std::move(comm))) {
  init();
}

Backend::~Backend() {
  const WithoutPython without;
  try {
    leave();
  } catch (const std::exception&) {  // nobody can hear of it
  }
}

void Backend::startCoalescing() {
  const auto held = lock();
  // Not one inside of another: what an exception has ended is over, and nobody waits for its calls.
  coalesced_[std::this_thread::get_id()].clear();
}

WorkPointer Backend::endCoalescing() {
  const auto held = lock();
  const auto ended = coalesced_.extract(std::this_thread::get_id());
  TORCH_CHECK(ended, "endCoalescing without startCoalescing on this thread");
  const std::vector<WorkPointer>& works = ended.mapped();
  if (works.empty()) return nullptr;
  const Tensors::size_type parts = works.size();
  const auto device = [](const WorkPointer& work) {
    return static_cast<Work&>(*work).operation().device;
  };
  std::vector<WorkPointer> on_gpu;
  for (const WorkPointer& work : works) {
    if (!device(work).is_cpu()) on_gpu.push_back(work);
  }
  if (!on_gpu.empty()) {
    translated([&] { put_on_stream(on_gpu); }, [this](const Error& error) { hears(error); });
  }
  Operation o(::c10d::OpType::COALESCED, "tutti:coalesced",
              device(on_gpu.empty() ? works.front() : on_gpu.front()));
  for (const WorkPointer& work : works) {
    const Tensors results = work->result();
    o.results.insert(o.results.end(), results.begin(), results.end());
  }
  auto all = make_work(std::move(o), options_->timeout, static_cast<int>(parts));
  if (!on_gpu.empty()) all->record_event();
  for (const WorkPointer& work : works) static_cast<Work&>(*work).then_end(all);
  return all;
}

void Backend::monitoredBarrier(const ::c10d::BarrierOptions& opts, bool all) {
  const std::uint64_t number = monitored_++;
  const Milliseconds timeout =
      opts.timeout == ::c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  monitored_barrier(*store_, rank_, size_, number, timeout, all);
}

void Backend::setTimeout(Milliseconds timeout) { options_->timeout = timeout; }

void Backend::registerOnCompletionHook(WorkHook&& hook) {
  TORCH_CHECK(!hasHooks(), "this group has a hook for the completion of works already");
  // For hasHooks(). The ledger alone keeps the hook, which may be Python's.
  onCompletionHook_ = [](const std::shared_ptr<::c10d::WorkInfo>&) {};
  ledger_->set_work_hook(std::move(hook));
}

void Backend::waitForPendingWorks() {
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  ledger_->wait_until_told([] { throw_if_interrupted(); });
}

void Backend::addEphemeralTimeout(const Milliseconds& timeout) { ledger_->extend(timeout); }

::c10d::ErrorType Backend::getError() {
  const auto calls = comm();
  {
    const std::lock_guard its(replacing_);
    if (!*calls || revoked_) return ::c10d::ErrorType::SUCCESS;
  }
  const std::optional<Error> error = calls->error();
  if (!error) return ::c10d::ErrorType::SUCCESS;
  if (error->code() == ErrorCode::timed_out) return ::c10d::ErrorType::TIMEOUT;
  return error->code() == ErrorCode::peer_lost ? ::c10d::ErrorType::REMOTE_ERROR
                                               : ::c10d::ErrorType::COMM_ERROR;
}

c10::intrusive_ptr<::c10d::Backend> Backend::split(const StorePointer& store,
                                                   const std::vector<int>& members,
                                                   const OptionsPointer& opts) {
  const auto me = std::ranges::find(members, rank_);
  if (me == members.end()) return nullptr;
  return c10::make_intrusive<Backend>(store, static_cast<int>(me - members.begin()),
                                      static_cast<int>(members.size()), met_at_once(opts),
                                      invariant_);
}

bool Backend::supportsShrinking() const { return true; }

// PyTorch destroys this group afterwards, which may have failed before.
c10::intrusive_ptr<::c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& excluded,
                                                    int flags, const OptionsPointer& opts) {
  constexpr int kAbort = 1;  // SHRINK_ABORT: calls that are under way end
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  if (flags == kAbort) abort();
  auto options = c10::make_intrusive<Options>(opts ? *opts : *options_);
  const std::vector<int> gone(excluded.begin(), excluded.end());
  {
    const auto held = lock();
    check_usable();
    if (messages_) messages_->leave();
  }
  Communicator made =
      translated([&] { return comm()->shrink(gone, options_of(options->timeout)); });
  auto store = c10::make_intrusive<::c10d::PrefixStore>("tutti/shrunk", store_);
  return c10::make_intrusive<Backend>(store, std::move(made), std::move(options), invariant_);
}

c10::intrusive_ptr<::c10d::Backend> Backend::merge(const StorePointer& store,
                                                   const OptionsPointer& opts, const int& rank,
                                                   const int& size) {
  return c10::make_intrusive<Backend>(store, rank, size, met_at_once(opts), invariant_);
}

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() { return window_allocator(); }

// A CPU has no index.
bool Backend::supportsTensorAlloc(c10::DeviceIndex device) { return device < 0; }

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "allocateTensor: window memory is the CPU's");
  TORCH_CHECK(size >= 0, "allocateTensor: the size is negative");
  const std::size_t bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  const auto allocator = window_allocator();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes),
                       allocator.get(), /*resizable=*/true);
  return at::empty({0}, options).set_(storage, 0, {size});
}

void Backend::abort() {
  constexpr Milliseconds kLongest(5000);  // the engine notices within a moment
  const WithoutPython without;
  {
    const auto calls = comm();
    if (!*calls) return;
    // A program aborts a group with ranks that change so that it can reconfigure the group. That is
    // no error, unless it has ended an operation.
    const bool idle = calls.use_count() == 2;  // that of comm_, too
    if (enables_reconfigure(*options_) && idle && ledger_->wait_until_over(Milliseconds(0))) {
      const std::optional<Error> error = calls->error();
      const std::lock_guard its(replacing_);
      revoked_ = !error || error->code() == ErrorCode::aborted;
    }
    calls->abort("torch.distributed was told to abort");
  }
  {
    const auto held = lock();
    if (messages_) messages_->leave();
  }
  ledger_->wait_until_over(kLongest);
}

void Backend::shutdown() {
  const WithoutPython without;
  {
    const EndedByCtrlC interruptible;
    leave();
  }
  throw_if_interrupted();
}

#ifdef C10D_BACKEND_HAS_HOOKS

void Backend::registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) {
  ledger_->set_abort_hook(id, std::move(hook));
}

void Backend::unregisterAbortHook(std::int64_t id) { ledger_->set_abort_hook(id, {}); }

#endif

#ifdef TUTTI_C10D_HAS_COMPLETION_HOOKS

void Backend::registerCompletionHook(std::int64_t id, ::c10d::CompletionHook hook) {
  if (!hook) return unregisterCompletionHook(id);
  ledger_->set_completion_hook(id, [hook = std::move(hook)](auto number, auto took) {
    hook({.completionKey = number, .duration_ms = took});
  });
}

void Backend::unregisterCompletionHook(std::int64_t id) { ledger_->set_completion_hook(id, {}); }

#endif

void Backend::leave() {
  if (process_ != process_id()) return;  // a child leaves nothing
  replace({});
}

}  // namespace tutti::pytorch
