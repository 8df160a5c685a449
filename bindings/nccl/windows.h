// The windows of ncclCommWindowRegister(): memory of each rank that the others write to, as
// tutti::Window. Where no rank can have that, as the memory is a GPU's or another process must not
// write to it, a program still has a handle to ask about.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bindings/nccl/comm.h"
#include "comm/window.h"

namespace tutti::nccl {

struct RegisteredWindow {
  ncclComm* comm = nullptr;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<Window> window{};  // null: the others cannot write there, because:
  std::string why_not{};
};

/// Throws Error(invalid_argument) for what is no window, or no more.
RegisteredWindow registered_window(ncclWindow_t handle);
/// Ends the windows of a communicator that ends.
void forget_windows(const ncclComm& comm);

}  // namespace tutti::nccl
