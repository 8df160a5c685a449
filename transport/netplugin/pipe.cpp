#include "transport/netplugin/pipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/settings.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// A message of one byte is an end; what is written is longer.
constexpr std::size_t kEndBytes = 1;

constexpr std::string_view kTimeout = "TUTTI_RENDEZVOUS_TIMEOUT";

}  // namespace

NetPluginPipe::NetPluginPipe(NetPlugin& plugin, int device) : plugin_(plugin), device_(device) {}

// --- How it comes about --------------------------------------------------------------------------

NetPluginPipe::Address NetPluginPipe::address() {
  Address mine;
  plugin_.name().copy(mine.plugin.data(), mine.plugin.size() - 1);
  listener_ = plugin_.listen(device_, mine.handle);
  return mine;
}

void NetPluginPipe::connect(const Address& address) {
  const std::string theirs(address.plugin.data(),
                           strnlen(address.plugin.data(), address.plugin.size()));
  if (theirs != plugin_.name().substr(0, address.plugin.size() - 1)) {
    throw Error(
        ErrorCode::mismatch,
        fmt::format("it uses the network plugin \"{}\", this rank {}: NCCL_NET_PLUGIN has to "
                    "name the same on all ranks",
                    theirs, plugin_.description()));
  }
  theirs_ = address.handle;
  until_ = Clock::now() + setting_seconds(kTimeout);
  state_ = State::connecting;
}

void NetPluginPipe::connect_on() {
  if (sender_ == nullptr) sender_ = plugin_.connect(device_, theirs_);
  if (receiver_ == nullptr) receiver_ = plugin_.accept(listener_);
  if (sender_ == nullptr || receiver_ == nullptr) {
    if (Clock::now() < until_) return;
    throw Error(
        ErrorCode::system,
        fmt::format("the network plugin {} has not connected within {:g} s ({})",
                    plugin_.description(),
                    std::chrono::duration<double>(setting_seconds(kTimeout)).count(), kTimeout));
  }
  plugin_.close_listener(std::exchange(listener_, nullptr));
  sends_ = plugin_.register_memory(sender_, out(0), kChunks * kChunkBytes);
  receives_ = plugin_.register_memory(receiver_, in(0), kChunks * kChunkBytes);
  state_ = State::up;
}

// --- What goes through it ------------------------------------------------------------------------

void NetPluginPipe::move() {
  if (state_ == State::connecting) connect_on();
  if (state_ != State::up) return;
  receive();
  send();
}

std::span<std::byte> NetPluginPipe::room(std::size_t least) {
  if (state_ != State::up || ending_) return {};
  std::size_t bytes = begun_ > given_ ? out_[(begun_ - 1) % kChunks].bytes : kChunkBytes;
  writes_ = begun_ - 1;
  if (bytes + least > kChunkBytes) {
    if (begun_ - done_ == kChunks) return {};
    writes_ = begun_;
    bytes = 0;
  }
  return {out(writes_) + bytes, kChunkBytes - bytes};
}

void NetPluginPipe::wrote(std::size_t bytes) {
  if (writes_ == begun_) out_[begun_++ % kChunks] = {};
  out_[writes_ % kChunks].bytes += bytes;
}

void NetPluginPipe::send() {
  for (; ends_ > 0 && begun_ - done_ < kChunks; --ends_) {
    out_[begun_++ % kChunks] = {kEndBytes, 0, nullptr};
  }
  for (; given_ < begun_; ++given_) {
    Chunk& chunk = out_[given_ % kChunks];
    chunk.request = plugin_.send(sender_, out(given_), chunk.bytes, sends_);
    if (chunk.request == nullptr) break;
  }
  while (done_ < given_ && plugin_.test(out_[done_ % kChunks].request).done) ++done_;
}

void NetPluginPipe::receive() {
  for (;;) {
    for (; posted_ < std::min(taken_ + kChunks, last_); ++posted_) {
      void* const request = plugin_.receive(receiver_, in(posted_), kChunkBytes, receives_);
      if (request == nullptr) break;
      in_[posted_ % kChunks] = {0, 0, request};
    }
    if (here_ == posted_) return;
    Chunk& chunk = in_[here_ % kChunks];
    const NetPlugin::Done done = plugin_.test(chunk.request);
    if (!done.done) return;
    chunk.bytes = std::min(done.bytes, kChunkBytes);
    ++here_;
    if (heard_end_) taken_ = here_;
  }
}

std::span<const std::byte> NetPluginPipe::came() {
  if (taken_ == here_ || heard_end_) return {};
  const Chunk& chunk = in_[taken_ % kChunks];
  if (chunk.bytes > kEndBytes) {
    return {in(taken_) + chunk.taken, chunk.bytes - chunk.taken};
  }
  heard_end_ = true;
  last_ = taken_ + kChunks;
  taken_ = here_;
  end();
  return {};
}

void NetPluginPipe::took(std::size_t bytes) {
  Chunk& chunk = in_[taken_ % kChunks];
  chunk.taken += bytes;
  if (chunk.taken == chunk.bytes) ++taken_;
}

// --- The end -------------------------------------------------------------------------------------

void NetPluginPipe::end() {
  if (!std::exchange(ending_, true)) ends_ = kChunks;
}

bool NetPluginPipe::is_quiet() const {
  return heard_end_ && here_ == last_ && ends_ == 0 && begun_ == done_;
}

bool NetPluginPipe::finish() noexcept {
  try {
    move();
    for (auto rest = came(); !rest.empty(); rest = came()) took(rest.size());
    if (state_ == State::up && !is_quiet()) return false;
  } catch (const Error&) {
    // This side is ending, and has heard all that there was to hear.
  }
  close();
  return true;
}

void NetPluginPipe::close() noexcept {
  if (std::exchange(state_, State::closed) == State::closed) return;
  const auto attempt = [](auto&& call) {
    try {
      call();
    } catch (const Error&) {
      // Of a peer that is lost, most often.
    }
  };
  if (sends_ != nullptr) attempt([&] { plugin_.deregister(sender_, sends_); });
  if (receives_ != nullptr) attempt([&] { plugin_.deregister(receiver_, receives_); });
  if (sender_ != nullptr) attempt([&] { plugin_.close_sender(sender_); });
  if (receiver_ != nullptr) attempt([&] { plugin_.close_receiver(receiver_); });
  if (listener_ != nullptr) attempt([&] { plugin_.close_listener(listener_); });
  if (is_quiet() || sends_ == nullptr) return;
  // The plugin may still read and write chunks that it had: these stay for good. Pipes of different
  // communicators close under different locks.
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<NetPluginPipe>>;
  const std::lock_guard lock(mutex);
  kept.push_back(shared_from_this());
}

}  // namespace tutti
