// A Connection: a bounded FIFO of slots from one rank to another, in shared memory of the receiver.
//
//     credit line | slots x header line | map | cells
//
// A slot is a header line, and as much of the data as its message needs. The data are cells, each
// as long as the longest message. Messages lie one behind the other in a cell, so many short ones
// use as much of the data as a few long ones. A message that does not fit begins the next cell.
// Together the cells should be larger than a core's L2 cache, or half of a large one: a line in the
// shared L3 costs 2 ns to write, and 5 in the receiver's L2. There may be less data than all slots
// could fill: then long messages wait for room, and short ones only for a slot.
//
// Messages go round a few cells at first, so that the first calls of a process meet few new pages
// (docs/experiments.md#a-links-cells-come-into-use-one-by-one). The sender takes a fresh one where
// the receiver has not finished with those, and one for every so many that it begins.
//
// Two ranks that send to each other exchange cells: a receiver that has read a cell to its end
// keeps it for its own messages to that rank, and gives the sender one of its own instead. A line
// costs less to write for the core that has read it last than for the one that has written it: an
// exchange of 256 KiB takes 0.75 of its time (docs/experiments.md#slots). The map of a connection
// says where the cells that messages have begun lie: in its own data, or in those of the connection
// back. Where the next cell is such a one, the sender ends the one in use after kHotBytes, and says
// so in the header: then two ranks that answer each other write the lines that they have just read.
//
// Counters, not flags: each slot's header holds the number of the message in it, which only grows,
// so nothing is ever reset. Headers have one writer, the sender, and the credit line the receiver.
// Cells have numbers, in the order in which messages begin them; cell n has entry n % cells() of
// the map. A cell and its entry belong to the sender until it publishes a message there, and to the
// receiver until it frees a message of the cell after it. A message of up to kInlineBytes travels
// in the header's own cache line: one line moves between the cores, which is the least that an
// exchange can cost.
//
// Bulk messages may be written past the cache, which is faster where the two cores do not share an
// L3 cache: 3 ns a line, and not 27. Only the clock knows, as a hypervisor moves virtual cores
// about: so the sender times some of its messages (docs/experiments.md#slots).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "collectives/connection_shape.h"

namespace tutti {

/// Where the cells that messages begin lie: as the map says, in the order in which the sender takes
/// them; or each in its own place, in turn, as where a wire lies between, whose ends compute it
/// alike. Then short messages do not fill a cell, but soon begin the next one: the first round
/// through the cells, in which each page is new, takes some dozens of them, and not thousands
/// (docs/experiments.md#the-first-pass-over-a-link).
enum class Places : std::uint8_t { mapped, fixed };

namespace detail {
struct ConnectionView {
  CreditLine* credit = nullptr;
  SlotHeader* headers = nullptr;
  std::atomic<std::uint32_t>* map = nullptr;  // where each cell lies; 0: in its own place
  std::byte* data = nullptr;
  std::byte* data_back = nullptr;  // of the connection back; null: there is none
  ConnectionShape shape;
  Places places = Places::mapped;
  std::uint32_t most_in_cell = UINT32_MAX;

  ConnectionView() = default;
  ConnectionView(std::byte* memory, ConnectionShape s, Places p = Places::mapped)
      : credit(reinterpret_cast<CreditLine*>(memory)),
        headers(reinterpret_cast<SlotHeader*>(memory + sizeof(CreditLine))),
        map(reinterpret_cast<std::atomic<std::uint32_t>*>(headers + s.slots)),
        data(memory + sizeof(CreditLine) + s.slots * sizeof(SlotHeader) + s.map_bytes()),
        shape(s),
        places(p),
        most_in_cell(p == Places::mapped ? UINT32_MAX : s.most_in_cell()) {}
  /// `back`: the memory of the connection of that shape that leads the other way.
  ConnectionView(std::byte* memory, std::byte* back, ConnectionShape s)
      : ConnectionView(memory, s) {
    data_back = ConnectionView(back, s).data;
  }

  /// Where the `n`-th cell lies: twice the number of a cell's memory, plus 1 if that is one of the
  /// connection back.
  std::uint32_t place(std::size_t n) const {
    // relaxed: the messages in the cell, and their credit, give the order.
    const std::uint32_t said = map[n].load(std::memory_order_relaxed);
    // The other process could write anything there.
    return said == 0 || said > 2 * shape.cells() ? 2 * static_cast<std::uint32_t>(n) : said - 1;
  }
  void set_place(std::size_t n, std::uint32_t place) const {
    map[n].store(place + 1, std::memory_order_relaxed);
  }
  std::byte* cell(std::size_t n) const {
    const std::uint32_t at = place(n);
    return (at % 2 == 0 ? data : data_back) + at / 2 * shape.slot_bytes;
  }
};

/// Where the next message lies in the data. Both ends keep one, and agree.
class Cursor {
 public:
  /// How far from the start of the data, were each cell in its own place.
  std::size_t of(std::size_t bytes, const ConnectionView& view) const {
    const std::size_t length = view.shape.slot_bytes;
    return fits(bytes) ? (entry_ + 1) * length - left_ : next_entry(view) * length;
  }
  std::byte* address(std::size_t bytes, const ConnectionView& view) const {
    return fits(bytes) ? view.cell(entry_) + (view.shape.slot_bytes - left_)
                       : view.cell(next_entry(view));
  }
  /// Whether there is room for it in the cell that is begun.
  bool fits(std::size_t bytes) const { return to_line(bytes) <= left_; }
  void pass(std::size_t bytes, const ConnectionView& view) {
    if (bytes <= kInlineBytes) return;
    if (!fits(bytes)) {
      entry_ = next_entry(view);
      ++begun_;
      left_ = view.shape.slot_bytes;
      in_cell_ = 0;
    }
    left_ -= to_line(bytes);
    if (bytes < kRunBytes && ++in_cell_ >= view.most_in_cell && used(view) >= kPageBytes) {
      end_cell();
    }
  }
  /// The next message begins a cell, and what is left of this one stays unused.
  void end_cell() { left_ = 0; }
  /// Whether the cell in use may end early.
  bool may_end(const ConnectionView& view) const { return left_ > 0 && used(view) >= kHotBytes; }
  /// How far the data have been used, from the first message on. Data that were left unused at the
  /// end of a cell are included.
  std::uint64_t passed(const ConnectionView& view) const {
    return begun_ * view.shape.slot_bytes - left_;
  }
  /// Cells that messages have begun; the number of the next.
  std::uint64_t begun() const { return begun_; }

 private:
  /// Of the last cell that is begun, in bytes.
  std::size_t used(const ConnectionView& view) const { return view.shape.slot_bytes - left_; }
  std::size_t next_entry(const ConnectionView& view) const {
    return begun_ == 0 || entry_ + 1 == view.shape.cells() ? 0 : entry_ + 1;
  }

  std::uint64_t begun_ = 0;
  std::size_t entry_ = 0;      // of the last cell that is begun
  std::size_t left_ = 0;       // of it, in bytes
  std::uint32_t in_cell_ = 0;  // short messages
};
}  // namespace detail

/// The sending end. One thread at a time.
class Sender {
 public:
  Sender() = default;
  Sender(std::byte* memory, ConnectionShape shape, Places places = Places::mapped)
      : Sender(detail::ConnectionView(memory, shape, places)) {}
  /// `back`: the memory of the connection that leads the other way.
  Sender(std::byte* memory, std::byte* back, ConnectionShape shape)
      : Sender(detail::ConnectionView(memory, back, shape)) {}
  /// Of a connection that the receiver has yet to share: there is no room before `look` finds it.
  Sender(std::function<std::byte*()> look, ConnectionShape shape)
      : look_(std::move(look)), shape_(shape) {}

  /// Whether there is room for a message of `bytes`. Looks at the receiver's line only when there
  /// seems to be none.
  bool ready(std::size_t bytes) { return has_room(bytes) || has_room_now(bytes); }
  /// Where a message of `bytes` is to be written; valid when ready(bytes).
  std::byte* slot(std::size_t bytes) {
    return bytes <= kInlineBytes ? view_.headers[index_].payload : cursor_.address(bytes, view_);
  }
  void publish(std::uint32_t tag, std::uint32_t bytes) {
    SlotHeader& h = view_.headers[index_];
    if (taken_ < view_.shape.cells() && bytes > kInlineBytes && !cursor_.fits(bytes)) count_cell();
    cursor_.pass(bytes, view_);
    h.tag = tag;
    h.bytes = bytes;
    if (bytes > kInlineBytes && cursor_.may_end(view_) && next_is_better() && keeps_room(bytes)) {
      cursor_.end_cell();
      h.bytes |= SlotHeader::kEndsCell;
    }
    // release: the payload and the two words above are visible once the number is.
    h.message.store(++sent_, std::memory_order_release);
    if (++index_ == view_.shape.slots) index_ = 0;
  }
  std::uint64_t sent() const { return sent_; }
  /// Whether the receiver has finished with every message.
  bool all_received() {
    // acquire: pairs with free(), so what the receiver read before is ours again.
    if (consumed_ != sent_) consumed_ = view_.credit->consumed.load(std::memory_order_acquire);
    return consumed_ == sent_;
  }
  /// Whether a message that the receiver has not finished with has data.
  bool has_data() const;

  /// The receiver of the connection back has read a cell, which lies at `place` as seen from here.
  /// Takes it in exchange for a cell that no message has begun, and returns that one's place.
  /// Returns `place` itself if none is free, or if fewer cells have been begun here than exchanged:
  /// where only the other rank sends, it is to keep the cells that it has.
  std::uint32_t exchange(std::uint32_t place);

  /// Whether the next message, a bulk one, should be written past the cache; and whether it should
  /// be timed. As long as the cache is fast, every 7th is timed; else every 119th is written into
  /// the cache, and timed, to see whether that has become fast. (Odd numbers: a plan that repeats
  /// two steps would have only one of them timed.) Ask once per message.
  struct Way {
    bool past_cache = false, timed = false;
  };
  Way choose_way() {
    const std::uint64_t number = bulk_++;
    const bool timed = number % (far_ ? 119 : 7) == 0;
    return {far_ && !timed, timed};
  }
  /// While the cache is fast: the next bulk message is one of the timed ones.
  void time_next() {
    if (!far_) bulk_ = 0;
  }
  /// Whether lines that the receiver has read are slow to write, as far as messages were timed.
  bool is_far() const { return far_; }
  /// What a message took that was to be timed, per cache line and receiver of it.
  void took(double nanoseconds) {
    // Measured: 2 to 8 within an L3 cache, 27 and more across. An average, because a plan's steps
    // differ (5 and 35, in turn, in a ring across), and a limit to what an interruption counts. The
    // rare times when far count more.
    const double weight = far_ ? 0.25 : 0.125;
    average_ += weight * (std::min(nanoseconds, 50.0) - average_);
    far_ = average_ > 12;
  }

 private:
  explicit Sender(const detail::ConnectionView& view);

  /// Whether the next cell has just been read here; or is one of the first, which no message has
  /// filled: the sooner they have been read, the sooner are there some to exchange.
  bool next_is_better() const {
    return cursor_.begun() - in_turn_ < next_to_exchange_ ||
           (taken_ < in_turn_ && view_.data_back != nullptr);
  }
  bool has_room_now(std::size_t bytes);
  /// Whether the cells that nobody has begun have room for as many messages of `bytes` as may be
  /// under way.
  bool keeps_room(std::size_t bytes);
  bool has_slot() const { return sent_ - consumed_ < view_.shape.slots; }
  bool has_room(std::size_t bytes) {
    return has_slot() && (bytes <= kInlineBytes || cursor_.fits(bytes) || has_cell());
  }
  /// Whether a cell can be begun, which has its entry in the map then.
  bool has_cell() {
    if (taken_ < view_.shape.cells()) return find_place();
    return is_done(cursor_.begun() - in_turn_);
  }
  /// has_cell() while there are fresh cells. Writes the next cell's entry in the map.
  bool find_place();
  /// The next message begins a cell: of the fresh ones one less is left, or messages go round one
  /// more from now on.
  void count_cell();
  /// Whether the receiver has finished with cell `n`: it has freed a message of the cell after it,
  /// and so has exchanged this one, if it does. A number below 0 is of a place that nobody has
  /// used; the last of them waits for the first message all the same.
  bool is_done(std::uint64_t n) const {
    return static_cast<std::int64_t>((n + 1) * view_.shape.slot_bytes) <
           static_cast<std::int64_t>(freed_);
  }

  detail::ConnectionView view_;
  std::size_t index_ = 0;  // sent_ % slots, without a division
  std::uint64_t sent_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t freed_ = 0;
  detail::Cursor cursor_;
  // Messages go round so many cells: cell n lies where cell n - in_turn_ did, or in a fresh one.
  std::size_t in_turn_ = 0;
  std::size_t taken_ = 0;               // fresh ones that messages have begun
  std::uint64_t next_to_exchange_ = 0;  // no cell before this one is exchanged any more
  std::uint64_t exchanges_ = 0;
  std::uint64_t bulk_ = 0;
  double average_ = 0;  // ns per line written into the cache
  bool far_ = false;
  // For as long as there is no connection: view_ has no slots, so ready() comes to has_room_now().
  std::function<std::byte*()> look_;
  ConnectionShape shape_;
};

/// The receiving end. One thread at a time.
class Receiver {
 public:
  Receiver() = default;
  Receiver(std::byte* memory, ConnectionShape shape, Places places = Places::mapped)
      : view_(memory, shape, places) {}
  /// `back`: the memory of the connection that leads the other way.
  Receiver(std::byte* memory, std::byte* back, ConnectionShape shape)
      : view_(memory, back, shape) {}
  /// From now on cells are exchanged with `sender`, the end of the connection back that is here.
  /// The same thread uses both.
  void exchange_with(Sender& sender) { back_ = &sender; }

  bool ready() const {
    // acquire: pairs with publish(), so the payload is there.
    return header().message.load(std::memory_order_acquire) == received_ + 1;
  }
  std::uint32_t tag() const { return header().tag; }
  std::uint32_t bytes() const { return header().bytes & length_bits(); }
  /// The payload of a message of `bytes` (the receiver's own expectation, compared with bytes()
  /// before).
  const std::byte* slot(std::size_t bytes) const {
    return bytes <= kInlineBytes ? header().payload : cursor_.address(bytes, view_);
  }
  void free() {
    const bool has_data = bytes() > kInlineBytes;
    const std::uint64_t begun = cursor_.begun();
    pass();
    // The cell before is read to its end.
    if (back_ != nullptr && begun > 0 && cursor_.begun() != begun) exchange();
    // release, both: our loads of the payload come before the sender's next stores into it.
    if (has_data) view_.credit->freed.store(cursor_.passed(view_), std::memory_order_release);
    view_.credit->consumed.store(received_, std::memory_order_release);
  }
  /// Goes on to the next message, and does not free this one: for a copy of a receiver, which looks
  /// ahead of it.
  void pass() {
    cursor_.pass(std::min<std::size_t>(bytes(), view_.shape.slot_bytes), view_);
    if ((header().bytes & ~length_bits()) != 0) cursor_.end_cell();
    ++received_;
    if (++index_ == view_.shape.slots) index_ = 0;
  }
  std::uint64_t received() const { return received_; }
  /// Where messages' data lie, and also data of the connection back. Of no use to anybody as long
  /// as no message has data on its way, there or back, and nobody writes one.
  std::span<std::byte> data() const { return {view_.data, view_.shape.data_bytes()}; }
  bool has_data() const;

 private:
  const SlotHeader& header() const { return view_.headers[index_]; }
  /// The bits of SlotHeader::bytes that hold the length. Without a connection back no cell ends
  /// early, and so long a message is refused.
  std::uint32_t length_bits() const {
    return view_.data_back != nullptr ? ~SlotHeader::kEndsCell : ~std::uint32_t{0};
  }
  void exchange();

  detail::ConnectionView view_;
  std::size_t index_ = 0;
  std::uint64_t received_ = 0;
  detail::Cursor cursor_;
  Sender* back_ = nullptr;
};

}  // namespace tutti
