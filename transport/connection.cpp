// What a connection seldom does: mapping its data ahead of their use, and looking for room.
#include "transport/connection.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tutti {

bool Sender::has_room_now(std::size_t bytes) {
  if (view_.credit == nullptr) {
    std::byte* const memory = look_();
    if (memory == nullptr) return false;
    view_ = detail::ConnectionView(memory, shape_);
    look_ = nullptr;
  }
  // acquire: our next stores into the slot and the data come after the receiver's loads.
  consumed_ = view_.credit->consumed.load(std::memory_order_acquire);
  freed_ = view_.credit->freed.load(std::memory_order_acquire);
  return has_room(bytes);
}

bool Receiver::has_data() const {
  for (std::size_t n = 0; n < view_.shape.slots; ++n) {
    const SlotHeader& h = view_.headers[(index_ + n) % view_.shape.slots];
    if (h.message.load(std::memory_order_acquire) != received_ + 1 + n) return false;
    if (h.bytes > kInlineBytes) return true;
  }
  return false;
}

void detail::populate(const ConnectionView& view) {
  if (view.pages == Pages::as_used) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(view.data) + view.shape.data_bytes();
#ifdef MADV_POPULATE_WRITE
  // Linux 5.14; otherwise they are populated as they are used.
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin + end);
#endif
}

}  // namespace tutti
