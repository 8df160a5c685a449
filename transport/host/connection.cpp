// What a connection seldom does: looking for room, taking fresh cells, and exchanging cells with
// the connection back.
#include "transport/host/connection.h"

#include <algorithm>
#include <cstdint>

namespace tutti {

namespace {

// Where two ranks answer each other, one cell is written, one read, one waits for its exchange, and
// one is the next.
constexpr std::size_t kFirstCells = 4;
// One more for so many that were begun: its new pages count little beside what lies in those, and
// all are in use after a thousand.
constexpr std::uint64_t kBegunUntilNext = 32;

}  // namespace

Sender::Sender(const detail::ConnectionView& view) : view_(view) {
  const std::size_t all = view.shape.cells();
  in_turn_ = view.places == Places::fixed ? all : std::min(kFirstCells, all);
  taken_ = view.places == Places::fixed ? all : 0;
}

bool Sender::has_room_now(std::size_t bytes) {
  if (view_.credit == nullptr) {
    std::byte* const memory = look_();
    if (memory == nullptr) return false;
    *this = Sender(detail::ConnectionView(memory, shape_));
  }
  // acquire: our next stores into the slot and the data come after the receiver's loads.
  consumed_ = view_.credit->consumed.load(std::memory_order_acquire);
  freed_ = view_.credit->freed.load(std::memory_order_acquire);
  if (has_room(bytes)) return true;
  if (!has_slot() || in_turn_ == view_.shape.cells()) return false;
  ++in_turn_;
  return has_room(bytes);
}

bool Sender::find_place() {
  const std::uint64_t n = cursor_.begun();
  const std::size_t cells = view_.shape.cells();
  std::uint32_t place = static_cast<std::uint32_t>(2 * taken_);
  if (taken_ == in_turn_) {
    if (!is_done(n - in_turn_)) return false;
    place = view_.place((n - in_turn_) % cells);
  }
  view_.set_place(n % cells, place);
  return true;
}

void Sender::count_cell() {
  if (taken_ < in_turn_) {
    ++taken_;
  } else if (cursor_.begun() % kBegunUntilNext == 0 && in_turn_ < view_.shape.cells() &&
             cursor_.begun() - in_turn_ >= next_to_exchange_) {  // what was just read is better
    ++in_turn_;
  }
}

bool Sender::keeps_room(std::size_t bytes) {
  const std::uint64_t last =
      cursor_.begun() + view_.shape.cells_for(bytes) - 1 - view_.shape.cells();
  if (is_done(last)) return true;
  // acquire: as in has_room_now().
  freed_ = view_.credit->freed.load(std::memory_order_acquire);
  return is_done(last);
}

bool Sender::has_data() const {
  return view_.credit != nullptr &&
         view_.credit->freed.load(std::memory_order_acquire) != cursor_.passed(view_);
}

std::uint32_t Sender::exchange(std::uint32_t place) {
  if (view_.data_back == nullptr || exchanges_ >= cursor_.begun() || cursor_.begun() < in_turn_) {
    return place;
  }
  // Not the next cell: a message may lie there that is not published yet.
  const std::uint64_t cell = std::max(next_to_exchange_, cursor_.begun() - in_turn_ + 1);
  if (!is_done(cell)) {
    // acquire: what the receiver has read of the cell comes before what is done with it from now
    // on.
    freed_ = view_.credit->freed.load(std::memory_order_acquire);
    if (!is_done(cell)) return place;
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

}  // namespace tutti
