// The boundary between Tutti's C++ and C: the handles, and exceptions that become results. Nothing
// is thrown across it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bindings/c/tutti_c.h"
#include "comm/communicator.h"
#include "comm/window.h"
#include "core/error.h"

struct tutti_comm {
  tutti::Communicator communicator;
};
struct tutti_future {
  tutti::Future future;
};
struct tutti_window {
  tutti::Window window;
};

namespace tutti::c {

/// Keeps the failure for this thread; returns its code.
tutti_result failed(const Error& error) noexcept;
/// The same with the exception at hand. Call it from a catch block.
tutti_result caught() noexcept;

/// Runs the body of a function of the interface. A body that returns nothing has succeeded.
template <class Body>
tutti_result guarded(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return TUTTI_OK;
    } else {
      return body();
    }
  } catch (...) {
    return caught();
  }
}

[[noreturn]] void refuse(const std::string& why);
/// Refuses the argument `name` of `function`, which is NULL.
[[noreturn]] void refuse_null(const char* function, const char* name);

/// `pointer`, if it is not NULL; the others are for the message.
template <class T>
T& need(T* pointer, const char* function, const char* name) {
  if (pointer == nullptr) [[unlikely]]
    refuse_null(function, name);
  return *pointer;
}

inline Communicator& communicator(tutti_comm* comm, const char* function) {
  return need(comm, function, "comm").communicator;
}
inline const Communicator& communicator(const tutti_comm* comm, const char* function) {
  return need(comm, function, "comm").communicator;
}

/// A handle of what `make` returns, in *out.
template <class Handle, class Make>
tutti_result make_handle(Handle** out, const char* function, const char* name,
                         Make&& make) noexcept {
  return guarded([&] {
    need(out, function, name);
    // First, so that nothing is made that there is no memory to hold.
    auto handle = std::make_unique<Handle>();
    *handle = Handle{make()};
    *out = handle.release();
  });
}

/// A struct of the program, of which it has `size` bytes, as this library's: fields that an older
/// program does not have are 0. `first`: the size that the struct had in its first version.
template <class T>
T known(const T* given, std::size_t first, const char* function, const char* name) {
  const std::size_t size = need(given, function, name).size;
  if (size < first || size > sizeof(T)) {
    refuse(std::string(function) + ": " + name + "->size is " + std::to_string(size) +
           ", but must be sizeof(tutti_" + name + "), which here is " + std::to_string(sizeof(T)) +
           (size > sizeof(T)
                ? "; a program that was built with a newer tutti_c.h needs that version"
                  " of the library"
                : ""));
  }
  T own{};
  std::memcpy(&own, given, size);
  return own;
}

/// NULL: what the environment says.
Options options_of(const tutti_options* options, const char* function);
/// NULL: none, which is what the other communicator has.
std::optional<Options> changed_options(const tutti_options* options, const char* function);

/// As tutti_comm_handle() writes.
void write_text(std::string_view from, char* text, std::size_t size, std::size_t* length,
                const char* function);

/// Refuses numbers that a narrower type would turn into others.
std::chrono::nanoseconds timeout_of(std::int64_t nanoseconds, const char* function);
DataType type_of(int type, const char* function);
ReduceOp op_of(int op, const char* function);

}  // namespace tutti::c
