#include "window.h"

#include <algorithm>
#include <array>
#include <utility>

#include "errors.h"
#include "window_allocator.h"

#ifdef C10D_BACKEND_HAS_WINDOW

namespace tutti::pytorch {
namespace {

constexpr std::size_t kMostDims = 14;
using Described = std::array<std::int64_t, kMostDims + 2>;  // type, dimensions, sizes

void check_tensor(const at::Tensor& tensor, const char* what) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu(), what,
              ": a dense tensor of the CPU is needed");
  TORCH_CHECK(tensor.is_contiguous(), what, ": the tensor has gaps; it has to be contiguous");
}

}  // namespace

std::int64_t Window::Registered::count() const {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) n *= size;
  return n;
}

Window::Window(c10::intrusive_ptr<Backend> backend) : backend_(std::move(backend)) {}

Window::~Window() {
  const WithoutPython without;
  window_.end();
}

// All ranks tell each other the types and sizes of their tensors.
std::vector<Window::Registered> Window::exchange(const at::Tensor& tensor) {
  Described mine{static_cast<std::int64_t>(tensor.scalar_type()), tensor.dim()};
  std::ranges::copy(tensor.sizes(), mine.begin() + 2);
  const auto length = static_cast<std::int64_t>(mine.size());
  const at::Tensor all =
      backend_->gathered(at::tensor(at::ArrayRef<std::int64_t>(mine)),
                         Counts(backend_->ranks(), mine.size()), ::c10d::kUnsetTimeout);
  std::vector<Registered> ranks;
  for (int r = 0; r < backend_->getSize(); ++r) {
    const std::int64_t* const said = all.const_data_ptr<std::int64_t>() + r * length;
    ranks.push_back({static_cast<at::ScalarType>(said[0]), {said + 2, said + 2 + said[1]}});
  }
  return ranks;
}

void Window::tensor_register(const at::Tensor& tensor, bool owning) {
  TORCH_CHECK(ranks_.empty(),
              "tensor_register: double registration: this window has a tensor already; call "
              "tensor_deregister() first");
  check_tensor(tensor, "tensor_register");
  TORCH_CHECK(tensor.dim() <= static_cast<std::int64_t>(kMostDims), "tensor_register: a tensor of ",
              tensor.dim(), " dimensions; the most is ", kMostDims);
  TORCH_CHECK(is_window_memory(tensor.const_data_ptr(), tensor.nbytes()),
              "tensor_register: the tensor's memory is not of the group's mempool; "
              "backend.allocate_tensor() gives such memory");
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  std::vector<Registered> ranks = translated([&] { return exchange(tensor); });
  window_ =
      translated([&] { return backend_->comm()->window(tensor.data_ptr(), tensor.nbytes()); });
  ranks_ = std::move(ranks);
  if (owning) tensor_ = tensor;
}

void Window::tensor_deregister() {
  of(backend_->getRank(), "tensor_deregister");
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  ranks_.clear();
  const at::Tensor kept = std::exchange(tensor_, {});
  translated([&] { window_.close(); });
}

const Window::Registered& Window::of(std::int64_t rank, const char* what) const {
  TORCH_CHECK(!ranks_.empty(), what, ": this window is not registered: it has no tensor yet");
  TORCH_CHECK(rank >= 0 && rank < static_cast<std::int64_t>(ranks_.size()), what,
              ": there is no rank ", rank, " of ", ranks_.size());
  return ranks_[static_cast<std::size_t>(rank)];
}

WorkPointer Window::issue(const WindowCall& asked, const char* name, const at::Tensor& held,
                          bool async, Milliseconds timeout) {
  const auto issued = [&] {
    const EndedByCtrlC interruptible;
    const auto calls = backend_->comm();
    Operation o(::c10d::OpType::UNKNOWN, name, at::kCPU);
    if (held.defined()) o.held.push_back(held);
    const auto work = backend_->make_work(std::move(o), backend_->effective(timeout));
    WindowCall call = asked;
    call.timeout = work->getTimeout();
    Future future;  // none: it is over
    if (async) {
      future = window_.start(call);
    } else {
      window_.run(call);
    }
    if (future.valid()) {
      Backend::end_with(work, future);
    } else {
      work->end(std::nullopt);
    }
    return work;
  };
  const auto work = translated(issued, [&](const Error& error) { backend_->hears(error); });
  if (!async) work->wait(::c10d::kUnsetTimeout);
  return work;
}

WorkPointer Window::put(const at::Tensor& from, std::int64_t peer, std::int64_t offset, bool async,
                        const ::c10d::PutOptions& opts) {
  const Registered& there = of(peer, "put");
  check_tensor(from, "put");
  TORCH_CHECK(from.scalar_type() == there.type, "put: the source's type ", from.scalar_type(),
              " does not match the type ", there.type, " of rank ", peer, "'s tensor");
  TORCH_CHECK(offset >= 0, "put: the offset ", offset, " has to be nonnegative");
  TORCH_CHECK(offset <= there.count() && from.numel() <= there.count() - offset,
              "put: ", from.numel(), " elements at offset ", offset,
              " exceeds the window size of rank ", peer, ", ", there.count(), " elements");
  TORCH_CHECK(
      is_window_memory(from.const_data_ptr(), from.nbytes()),
      "put: the source is not in a registered mempool; backend.allocate_tensor() gives such "
      "memory");
  WindowCall call{.kind = WindowCall::Kind::put, .peer = static_cast<int>(peer)};
  call.offset = static_cast<std::size_t>(offset) * from.itemsize();
  call.from = from.const_data_ptr();
  call.bytes = from.nbytes();
  call.signals = true;
  return issue(call, "tutti:put", from, async, opts.timeout);
}

WorkPointer Window::signal(std::int64_t peer, bool async, const ::c10d::SignalOptions& opts) {
  of(peer, "signal");
  return issue({.kind = WindowCall::Kind::signal, .peer = static_cast<int>(peer)}, "tutti:signal",
               {}, async, opts.timeout);
}

WorkPointer Window::wait_signal(std::int64_t peer, bool async,
                                const ::c10d::WaitSignalOptions& opts) {
  of(peer, "wait_signal");
  return issue({.kind = WindowCall::Kind::wait_signal, .peer = static_cast<int>(peer)},
               "tutti:wait_signal", {}, async, opts.timeout);
}

at::Tensor Window::map_remote_tensor(std::int64_t rank) {
  const Registered& there = of(rank, "map_remote_tensor");
  std::byte* const memory = translated([&] { return window_.map(static_cast<int>(rank)); });
  TORCH_CHECK(memory != nullptr || there.count() == 0, "map_remote_tensor: the memory of rank ",
              rank, " cannot be mapped here: it is on another host; use put()");
  // The tensor keeps the window, not its registration.
  return at::from_blob(
      memory, there.sizes, [self = c10::intrusive_ptr<Window>::reclaim_copy(this)](void*) {},
      at::TensorOptions(there.type));
}

::c10d::WindowAttr Window::get_attr(std::int64_t peer) {
  const Registered& there = of(peer, "get_attr");
  const bool one = translated(
      [&] { return window_.map(static_cast<int>(peer)) != nullptr || there.count() == 0; });
  return {one ? ::c10d::WindowAccessType::UNIFIED : ::c10d::WindowAccessType::SEPARATE};
}

c10::intrusive_ptr<::c10d::Window> Backend::new_window(const std::optional<at::Tensor>& tensor) {
  check_usable();
  auto window = c10::make_intrusive<Window>(c10::intrusive_ptr<Backend>::reclaim_copy(this));
  if (tensor) window->tensor_register(*tensor, true);
  return window;
}

}  // namespace tutti::pytorch

#endif
