// What a connection seldom does: mapping its data ahead of their use, looking for room, and
// exchanging cells with the connection back.
#include "transport/host/connection.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "core/host_memory.h"

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

bool Sender::keeps_room(std::size_t bytes) {
  const std::uint64_t last = cursor_.begun() + view_.shape.cells_for(bytes) - 1;
  if (detail::Cursor::is_free(last, freed_, view_)) return true;
  // acquire: as in has_room_now().
  freed_ = view_.credit->freed.load(std::memory_order_acquire);
  return detail::Cursor::is_free(last, freed_, view_);
}

bool Sender::has_data() const {
  return view_.credit != nullptr &&
         view_.credit->freed.load(std::memory_order_acquire) != cursor_.passed(view_);
}

std::uint32_t Sender::exchange(std::uint32_t place) {
  if (view_.data_back == nullptr || exchanges_ >= cursor_.begun()) return place;
  // Not the next cell: a message may lie there that is not published yet.
  const std::uint64_t cell = std::max(next_to_exchange_, cursor_.begun() + 1);
  if (!detail::Cursor::is_free(cell, freed_, view_)) {
    // acquire: what the receiver has read of the cell comes before what is done with it from now
    // on.
    freed_ = view_.credit->freed.load(std::memory_order_acquire);
    if (!detail::Cursor::is_free(cell, freed_, view_)) return place;
  }
  const std::size_t entry = cell % view_.shape.cells();
  const std::uint32_t own = view_.place(entry);
  view_.set_place(entry, place);
  next_to_exchange_ = cell + 1;
  ++exchanges_;
  return own;
}

void Receiver::exchange() {
  const auto as_seen_from_back = [](std::uint32_t place) { return place ^ 1U; };
  const std::size_t entry = (cursor_.begun() - 2) % view_.shape.cells();
  const std::uint32_t place = view_.place(entry);
  view_.set_place(entry, as_seen_from_back(back_->exchange(as_seen_from_back(place))));
}

bool Receiver::has_data() const {
  for (std::size_t n = 0; n < view_.shape.slots; ++n) {
    const SlotHeader& h = view_.headers[(index_ + n) % view_.shape.slots];
    if (h.message.load(std::memory_order_acquire) != received_ + 1 + n) return false;
    if ((h.bytes & length_bits()) > kInlineBytes) return true;
  }
  return false;
}

void detail::populate(const ConnectionView& view) {
  if (view.pages == Pages::as_used) return;
  const std::uintptr_t page = page_bytes();
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
