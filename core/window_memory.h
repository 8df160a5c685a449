// The process's windows: the memory that tutti::allocate() handed out, findable by any pointer into
// it, so that a transport can pass the memfd behind it to other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct WindowMemory {
  std::uint32_t id = 0;  // never reused in this process; 0: no window
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  int fd = -1;  // owned by the registry
};

/// The window that holds all of [pointer, pointer + bytes), or one with id 0. Thread-safe, no lock
/// when the thread asks for one of its last four windows again.
WindowMemory find_window(const void* pointer, std::size_t bytes);

/// Ids of windows that were freed since `generation`, which is moved on. Thread-safe.
std::vector<std::uint32_t> freed_windows_since(std::uint64_t& generation);

}  // namespace tutti
