#include "transport/far_windows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/network/network.h"
#include "transport/network/wire.h"

namespace tutti {
namespace {

// The channel of a communicator's links of windows, after those of links.h.
constexpr std::uint64_t kWindowChannel = kMessageChannel + 1;
// The kernel takes one long message in a third of the time that it takes for ten short ones.
constexpr std::size_t kRungTogether = std::size_t{512} << 10;

// Tags of messages.
constexpr std::uint32_t kHead = 1, kData = 2;
// Head::what: a put, with signal `what` - 1; or
constexpr std::uint32_t kNoSignal = 0, kHasEnded = UINT32_MAX, kHasLeft = UINT32_MAX - 1;

/// Says what comes next. A short put has its data here, too.
struct Head {
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t what = kNoSignal;
  std::uint32_t failed = 0;  // of an end: 1 if the communicator had failed
  std::byte data[16] = {};
};
static_assert(sizeof(Head) == kInlineBytes);

}  // namespace

// --- The side that writes ------------------------------------------------------------------------

FarWriter::FarWriter(Wire& wire, std::uint64_t communicator, ConnectionShape shape,
                     Doorbell& doorbell)
    : link_(wire.out({communicator, kWindowChannel}, shape, doorbell)),
      most_bytes_(shape.slot_bytes) {}

std::uint64_t FarWriter::put(std::uint64_t key, std::uint64_t offset, const void* from,
                             std::size_t bytes, int signal) {
  return add({key, offset, static_cast<const std::byte*>(from), bytes,
              static_cast<std::uint32_t>(signal + 1)});
}

std::uint64_t FarWriter::say_closed(std::uint64_t key, WindowState state, bool failed) {
  return add({key, 0, nullptr, 0, state == WindowState::left ? kHasLeft : kHasEnded, failed});
}

std::uint64_t FarWriter::add(const Put& put) {
  const std::lock_guard lock(mutex_);
  if (broken_) return ++added_;
  puts_.push_back(put);
  publish();
  settle();
  return ++added_;
}

bool FarWriter::is_done(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  publish();
  settle();
  return number <= added_ - puts_.size();
}

void FarWriter::poll() {
  link_.poll();
  const std::lock_guard lock(mutex_);
  if (puts_.empty()) return;
  publish();
  settle();
}

void FarWriter::abandon(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t first = added_ - puts_.size() + 1;
  if (number < first) return;
  broken_ = true;
  for (const Put& put : puts_) {
    if (put.zero_copy > 0) link_.take_back(put.from, put.from + put.bytes);
  }
  puts_.clear();
  whole_ = 0;
}

void FarWriter::publish() {
  while (whole_ < puts_.size() && publish(puts_[whole_])) ++whole_;
  if (std::exchange(unrung_, 0) > 0) link_.rung();
}

/// False: there is no room for the rest.
bool FarWriter::publish(Put& put) {
  Sender& sender = link_.sender();
  if (!put.has_head) {
    Head head{put.key, put.offset, put.bytes, put.what, put.failed ? 1U : 0U};
    if (!sender.ready(sizeof head)) return false;
    if (put.bytes <= sizeof head.data) {
      if (put.bytes > 0) std::memcpy(head.data, put.from, put.bytes);
      put.published = put.bytes;
    }
    std::memcpy(sender.slot(sizeof head), &head, sizeof head);
    sender.publish(kHead, sizeof head);
    unrung_ += sizeof head;
    put.has_head = true;
  }
  while (put.published < put.bytes) {
    const std::size_t piece = std::min(put.bytes - put.published, most_bytes_);
    const std::byte* const from = put.from + put.published;
    if (!sender.ready(piece)) return false;
    const auto length = static_cast<std::uint32_t>(piece);
    const bool is_sent_from = piece >= kZeroCopyBytes && link_.can_send_from(from, piece);
    if (!is_sent_from) std::memcpy(sender.slot(piece), from, piece);
    link_.publish_into(put.key, put.offset + put.published, is_sent_from ? from : nullptr, kData,
                       length);
    if (is_sent_from) put.zero_copy = sender.sent();
    put.published += piece;
    unrung_ += piece;
    if (unrung_ >= kRungTogether) {
      unrung_ = 0;
      link_.rung();
    }
  }
  return true;
}

void FarWriter::settle() {
  while (whole_ > 0 && link_.has_sent(puts_.front().zero_copy)) {
    puts_.pop_front();
    --whole_;
  }
}

// --- The side that owns the window ---------------------------------------------------------------

bool FarWindows::Reader::take(std::uint32_t tag, const std::byte* payload, std::uint32_t bytes) {
  if (tag == kHead) return take_head(payload, bytes);
  if (tag != kData || bytes == 0 || bytes > left_) return false;
  const std::lock_guard lock(windows_.mutex_);
  const auto found = windows_.targets_.find(key_);
  const bool is_open = found != windows_.targets_.end();
  if (is_open && in_window_ && payload != nullptr) {
    std::memcpy(found->second.base + offset_, payload, bytes);
  }
  offset_ += bytes;
  left_ -= bytes;
  if (left_ == 0 && is_open) give_signal(found->second);
  return true;
}

bool FarWindows::Reader::take_head(const std::byte* payload, std::uint32_t bytes) {
  Head head;
  if (bytes != sizeof head || left_ > 0) return false;
  std::memcpy(&head, payload, sizeof head);
  const std::lock_guard lock(windows_.mutex_);
  const auto found = windows_.targets_.find(head.key);
  if (head.what == kHasEnded || head.what == kHasLeft) {
    const WindowState state = head.what == kHasLeft ? WindowState::left : WindowState::ended;
    if (found != windows_.targets_.end()) {
      found->second.on_closed(peer_, state, head.failed != 0);
    }
    ring(windows_.group_.control().doorbell);
    return true;
  }
  if (head.what > kWindowSignals) return false;
  const bool is_open = in_window_ = found != windows_.targets_.end();
  if (is_open) {
    const std::size_t size = found->second.bytes;
    if (head.offset > size || head.bytes > size - head.offset) return false;
  }
  key_ = head.key;
  offset_ = head.offset;
  left_ = head.bytes;
  signal_ = static_cast<int>(head.what) - 1;
  if (head.bytes > sizeof head.data) return true;
  if (is_open && head.bytes > 0) {
    std::memcpy(found->second.base + offset_, head.data, head.bytes);
  }
  left_ = 0;
  if (is_open) give_signal(found->second);
  return true;
}

void FarWindows::Reader::give_signal(const WindowTarget& target) {
  if (signal_ < 0) return;
  // Nobody else counts for this peer. release: after its data.
  SignalBoard::Counter& counter = target.board.signal(peer_, signal_);
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  ring(windows_.group_.control().doorbell);
}

FarWindows::FarWindows(RankGroup& group) : group_(group) {
  try {
    for (int r = 0; r < group.size(); ++r) {
      if (!group.same_host(r)) connect(r);
    }
  } catch (...) {
    stop_taking();
    throw;
  }
}

void FarWindows::connect(int r) {
  Wire& wire = group_.network()->wire(group_.member(r));
  Doorbell& doorbell = group_.control().doorbell;
  writers_[r] = std::make_unique<FarWriter>(wire, group_.id(), group_.shape(), doorbell);
  Incoming& incoming = readers_[r];
  incoming.reader = std::make_unique<Reader>(*this, r);
  incoming.wire = &wire;
  incoming.link = &wire.in({group_.id(), kWindowChannel}, group_.shape(), *incoming.reader);
}

FarWindows::~FarWindows() { stop_taking(); }

void FarWindows::stop_taking() {
  for (auto& [peer, incoming] : readers_) {
    if (incoming.link != nullptr) incoming.wire->stop_taking(*incoming.link);
  }
}

void FarWindows::open(std::uint64_t key, WindowTarget target) {
  std::byte* const base = target.base;
  const std::size_t bytes = target.bytes;
  {
    const std::lock_guard lock(mutex_);
    targets_[key] = std::move(target);
  }
  for (auto& [peer, incoming] : readers_) incoming.wire->expose(key, base, bytes);
}

void FarWindows::close(std::uint64_t key) {
  {
    const std::lock_guard lock(mutex_);
    targets_.erase(key);
  }
  for (auto& [peer, incoming] : readers_) incoming.wire->begin_to_hide(key);
  for (auto& [peer, incoming] : readers_) incoming.wire->hide(key);
}

}  // namespace tutti
