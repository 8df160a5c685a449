// One-sided windows of tensors: c10d's interface over tutti::Window. Each rank registers a tensor;
// the others write elements into it and signal it. A put also signals, so a put here and a
// wait_signal() there are the whole protocol.
//
// Tensors and the sources of puts are window memory (Backend::allocateTensor), which the other
// ranks of the host write to in place. Arguments are checked on the rank that calls, without the
// others.
#pragma once

#include "backend.h"

#ifdef C10D_BACKEND_HAS_WINDOW

namespace tutti::pytorch {

class Window final : public ::c10d::Window {
 public:
  explicit Window(c10::intrusive_ptr<Backend> backend);
  ~Window() override;

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  WorkPointer put(const at::Tensor& from, std::int64_t peer, std::int64_t offset, bool async,
                  const ::c10d::PutOptions& opts) override;
  WorkPointer signal(std::int64_t peer, bool async, const ::c10d::SignalOptions& opts) override;
  WorkPointer wait_signal(std::int64_t peer, bool async,
                          const ::c10d::WaitSignalOptions& opts) override;
  /// The tensor of that rank, in its memory; a peer's as long as both have it registered.
  at::Tensor map_remote_tensor(std::int64_t rank) override;
  ::c10d::WindowAttr get_attr(std::int64_t peer) override;

 private:
  struct Registered {  // by a rank
    at::ScalarType type = at::kByte;
    std::vector<std::int64_t> sizes;
    std::int64_t count() const;
  };

  const Registered& of(std::int64_t rank, const char* what) const;
  std::vector<Registered> exchange(const at::Tensor& tensor);
  WorkPointer issue(const WindowCall& call, const char* name, const at::Tensor& held, bool async,
                    Milliseconds timeout);

  const c10::intrusive_ptr<Backend> backend_;
  tutti::Window window_;
  at::Tensor tensor_;  // this rank's, if the window keeps it
  std::vector<Registered> ranks_;
};

}  // namespace tutti::pytorch

#endif
