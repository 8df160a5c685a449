// Window memory, and windows.
#include "core/memory.h"

#include <span>

#include "bindings/c/boundary.h"

namespace tutti::c {
namespace {

static_assert(TUTTI_WINDOW_SIGNALS == Window::kSignals);

Window& window_of(tutti_window* window, const char* function) {
  return need(window, function, "window").window;
}

}  // namespace
}  // namespace tutti::c

using namespace tutti;

tutti_result tutti_allocate(size_t bytes, void** memory) {
  return c::guarded([&] { c::need(memory, "tutti_allocate", "memory") = allocate(bytes); });
}

void tutti_deallocate(void* memory) { deallocate(memory); }

tutti_result tutti_register_memory(void* memory, size_t bytes, void** first, size_t* registered) {
  return c::guarded([&] {
    c::need(first, "tutti_register_memory", "first");
    c::need(registered, "tutti_register_memory", "registered");
    const std::span<std::byte> pages = register_memory(memory, bytes);
    *first = pages.data();
    *registered = pages.size();
  });
}

void tutti_unregister_memory(void* first) { unregister_memory(first); }

tutti_result tutti_window_open(tutti_comm* comm, void* memory, size_t bytes,
                               tutti_window** window) {
  return c::make_handle(window, __func__, "window", [&] {
    Communicator& on = c::communicator(comm, "tutti_window_open");
    return memory != nullptr ? on.window(memory, bytes) : on.window(bytes);
  });
}

void* tutti_window_data(const tutti_window* window) {
  return window != nullptr && window->window ? window->window.data() : nullptr;
}

tutti_result tutti_window_bytes(const tutti_window* window, int peer, size_t* bytes) {
  return c::guarded([&] {
    const Window& of = c::need(window, "tutti_window_bytes", "window").window;
    c::need(bytes, "tutti_window_bytes", "bytes") = of.bytes_of(peer);
  });
}

tutti_result tutti_window_map(const tutti_window* window, int peer, void** memory) {
  return c::guarded([&] {
    const Window& of = c::need(window, "tutti_window_map", "window").window;
    c::need(memory, "tutti_window_map", "memory") = of.map(peer);
  });
}

tutti_result tutti_window_put(tutti_window* window, int peer, size_t offset, const void* from,
                              size_t bytes) {
  return c::guarded(
      [&] { c::window_of(window, "tutti_window_put").put(peer, offset, from, bytes); });
}

tutti_result tutti_window_put_signal(tutti_window* window, int peer, size_t offset,
                                     const void* from, size_t bytes, int index) {
  return c::guarded([&] {
    c::window_of(window, "tutti_window_put_signal").put_signal(peer, offset, from, bytes, index);
  });
}

tutti_result tutti_window_signal(tutti_window* window, int peer, int index) {
  return c::guarded([&] { c::window_of(window, "tutti_window_signal").signal(peer, index); });
}

tutti_result tutti_window_wait_signal(tutti_window* window, int peer, uint64_t count, int index) {
  return c::guarded(
      [&] { c::window_of(window, "tutti_window_wait_signal").wait_signal(peer, count, index); });
}

tutti_result tutti_window_close(tutti_window* window) {
  return c::guarded([&] { c::window_of(window, "tutti_window_close").close(); });
}

void tutti_window_free(tutti_window* window) { delete window; }
