#include "bindings/mpi/lane.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "core/asymmetric_fence.h"
#include "core/combine.h"
#include "core/error.h"

namespace tutti::mpi {
namespace {

std::atomic_ref<std::uint32_t> stamp_at(std::byte* place) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(place));
}

/// A line that the other rank has read costs much to write where the two cores share no cache, and
/// little past the caches; where they share one, that costs a third more for short data, and
/// nothing for long ones (transport/host/connection.h).
void copy_in(std::byte* to, std::span<const std::byte> data) {
  constexpr std::size_t kStreamed = 4096;
  if (data.size() < kStreamed) {
    std::memcpy(to, data.data(), data.size());
    return;
  }
  static const Combiner copy(DataType::uint8, ReduceKind::sum);
  void* const destination = to;
  const Source source{data.data()};
  copy({&destination, 1}, {&source, 1}, data.size(), {.stream = 1});
}

}  // namespace

Lane::Lane(Window& window, WindowShape shape, int own, int peer)
    : window_(window), shape_(shape), own_(own), peer_(peer), theirs_(window.map(peer)) {
  mine_ = reinterpret_cast<const Credit*>(window.data() + shape.credit_at(peer));
  ring_ = window.data() + shape.ring_at(peer);
}

void Lane::meet(bool cma, bool light, std::function<void()> ring) {
  on_news_ = std::move(ring);
  if (theirs_ == nullptr) return await_news();
  const auto* front = reinterpret_cast<const Front*>(theirs_);
  pid_ = front->pid;
  light_ = light && front->light != 0;
  if (!cma) return;
  std::uint64_t word = 0;
  const iovec local{&word, sizeof word};
  const iovec remote{reinterpret_cast<void*>(front->probe), sizeof word};  // NOLINT: theirs
  may_copy_ =
      process_vm_readv(pid_, &local, 1, &remote, 1, 0) == sizeof word && word == front->probed;
}

/// A place for a record of `bytes` in the ring of the other rank (an offset from the ring's start
/// for far ones is tail_ % ring); writes what fills the end of the ring. Null: no room.
std::byte* Lane::room(std::size_t bytes) {
  const std::size_t at = tail_ % shape_.ring;
  const std::size_t skipped = at + bytes > shape_.ring ? shape_.ring - at : 0;
  // The next stamp has to be free as well.
  const std::uint64_t end = tail_ + skipped + bytes + kLine;
  if (end - known_head_ > shape_.ring) {
    known_head_ = mine_->head.load(std::memory_order_acquire);
    if (end - known_head_ > shape_.ring) return nullptr;
  }
  if (theirs_ == nullptr) {
    if (skipped > 0) skip_far(skipped);
    return staged_.data();
  }
  std::byte* const ring = theirs_ + shape_.ring_at(own_);
  if (skipped > 0) {
    stamp_at(ring).store(0, std::memory_order_relaxed);
    auto* filler = new (ring + at + sizeof(std::uint32_t)) RecordKind(RecordKind::skip);
    (void)filler;
    tail_ += skipped;
    stamp_at(ring + at).store(written_ = next_stamp(written_), std::memory_order_release);
    return ring;
  }
  return ring + at;
}

bool Lane::write(Header header, std::span<const std::byte> body, std::span<const std::byte> data) {
  header.payload = static_cast<std::uint32_t>(body.size() + data.size());
  const std::size_t bytes = record_bytes(header.payload);
  if (theirs_ == nullptr) staged_.resize(std::max(staged_.size(), bytes));
  std::byte* const place = room(bytes);
  if (place == nullptr) return false;
  if (theirs_ == nullptr) {
    put_far(header, body, data);
    return true;
  }
  std::byte* const ring = theirs_ + shape_.ring_at(own_);
  stamp_at(ring + (tail_ + bytes) % shape_.ring).store(0, std::memory_order_relaxed);
  constexpr std::size_t kStamp = sizeof header.stamp;
  std::memcpy(place + kStamp, reinterpret_cast<const std::byte*>(&header) + kStamp,
              sizeof header - kStamp);
  if (!body.empty()) std::memcpy(place + sizeof header, body.data(), body.size());
  if (!data.empty()) copy_in(place + sizeof header + body.size(), data);
  tail_ += bytes;
  stamp_at(place).store(written_ = next_stamp(written_), std::memory_order_release);
  return true;
}

void Lane::put_far(const Header& header, std::span<const std::byte> body,
                   std::span<const std::byte> data) {
  Header stamped = header;
  stamped.stamp = written_ = next_stamp(written_);
  const std::size_t bytes = sizeof header + header.payload;
  std::memcpy(staged_.data(), &stamped, sizeof stamped);
  if (!body.empty()) std::memcpy(staged_.data() + sizeof header, body.data(), body.size());
  if (!data.empty()) {
    std::memcpy(staged_.data() + sizeof header + body.size(), data.data(), data.size());
  }
  window_.put_signal(peer_, shape_.ring_at(own_) + tail_ % shape_.ring, staged_.data(), bytes);
  tail_ += record_bytes(header.payload);
}

void Lane::skip_far(std::size_t bytes) {
  Header filler;
  filler.kind = RecordKind::skip;
  filler.stamp = written_ = next_stamp(written_);
  window_.put_signal(peer_, shape_.ring_at(own_) + tail_ % shape_.ring, &filler, sizeof filler);
  tail_ += bytes;
}

void Lane::await_news() {
  news_ = window_.start({.kind = WindowCall::Kind::wait_signal,
                         .peer = peer_,
                         .timeout = std::chrono::nanoseconds::max()});
  if (news_.valid()) news_.on_ready(on_news_);
}

const Header* Lane::next() {
  for (;;) {
    const std::size_t at = head_ % shape_.ring;
    // The owner's memory; others write it.
    auto* place = const_cast<std::byte*>(ring_ + at);
    if (theirs_ != nullptr) {
      if (stamp_at(place).load(std::memory_order_acquire) != next_stamp(read_)) return nullptr;
    } else {
      if (news_.valid() && !news_.ready()) return nullptr;
      if (news_.valid()) news_.wait();  // throws its error
    }
    const auto* header = std::launder(reinterpret_cast<const Header*>(place));
    if (header->kind != RecordKind::skip) {
      if (at + record_bytes(header->payload) > shape_.ring ||
          (theirs_ == nullptr && header->stamp != next_stamp(read_))) {
        throw Error(ErrorCode::internal,
                    "a record of a message from rank " + std::to_string(peer_) + " has no sense",
                    peer_);
      }
      return header;
    }
    read_ = next_stamp(read_);
    head_ += shape_.ring - at;
    if (theirs_ == nullptr) await_news();
  }
}

void Lane::read_on() {
  const auto* header = std::launder(reinterpret_cast<const Header*>(ring_ + head_ % shape_.ring));
  const bool last = header->kind == RecordKind::bye;
  read_ = next_stamp(read_);
  head_ += record_bytes(header->payload);
  if (theirs_ == nullptr && !last) await_news();
  tell_credit(false);
}

void Lane::tell_credit(bool all) {
  constexpr std::uint64_t kEagerStep = std::uint64_t{256} << 10;
  if (head_ - told_head_ < (all ? 1 : shape_.ring / 4) &&
      eager_taken_ - told_eager_ < (all ? 1 : kEagerStep)) {
    return;
  }
  told_head_ = head_;
  told_eager_ = eager_taken_;
  if (theirs_ != nullptr) {
    auto* credit = reinterpret_cast<Credit*>(theirs_ + shape_.credit_at(own_));
    credit->eager.store(eager_taken_, std::memory_order_relaxed);
    credit->head.store(head_, std::memory_order_release);
    wake();
    return;
  }
  const std::uint64_t said[] = {head_, eager_taken_};
  window_.put(peer_, shape_.credit_at(own_), said, sizeof said);
}

void Lane::wake() const {
  if (theirs_ == nullptr) return;
  auto* front = reinterpret_cast<Front*>(theirs_);
  if (light_) {
    light_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (front->sleeps.load(std::memory_order_relaxed) == 0) return;
  front->bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &front->bell, FUTEX_WAKE, 64, nullptr, nullptr, 0);
}

}  // namespace tutti::mpi
