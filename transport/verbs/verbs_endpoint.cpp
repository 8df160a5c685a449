#include "transport/verbs/verbs_endpoint.h"

#include <chrono>
#include <cstring>

#include "core/error.h"
#include "transport/host/connection.h"

namespace tutti {
namespace {

// A message that is sent from users' memory is waited for until the peer's device has it, so that a
// stream of shorter ones, each a call, would stand still in between; they are copied sooner.
constexpr std::size_t kLeastDirect = std::size_t{256} << 10;

/// A message of the channel: a header and its short payload, or a control message.
struct Packet {
  std::uint32_t kind = 0;  // as MessageHeader's, and in its place
  std::array<std::byte, VerbsChannel::kMostMessage - sizeof kind> rest;
};
static_assert(offsetof(MessageHeader, kind) == 0);
static_assert(sizeof(MessageHeader) + kInlineBytes <= VerbsChannel::kMostMessage);
static_assert(sizeof(Packet::kind) + sizeof(Control) <= VerbsChannel::kMostMessage);

}  // namespace

VerbsEndpoint::VerbsEndpoint(Sink& sink, std::shared_ptr<VerbsWindows> windows, int peer,
                             const VerbsOptions& options)
    : Endpoint(sink),
      windows_(std::move(windows)),
      channel_(windows_->device(), peer, options),
      abilities_{.one_sided = true,
                 .registers = true,
                 .confirms = true,
                 .least_direct = kLeastDirect,
                 .device_memory = true,
                 .most_bytes = channel_.most_bytes()} {}

std::string VerbsEndpoint::carrier() const {
  return "verbs, " + tutti::describe(channel_.device()->port());
}

std::vector<std::byte> VerbsEndpoint::address() {
  const auto bytes = std::as_bytes(std::span(&channel_.address(), 1));
  return {bytes.begin(), bytes.end()};
}

void VerbsEndpoint::connect(std::span<const std::byte> address) {
  VerbsAddress peer;
  if (connected_ || address.size() != sizeof peer) return fail(kNonsense);
  std::memcpy(&peer, address.data(), sizeof peer);
  connected_ = attempt([&] { channel_.connect(peer); });
}

std::shared_ptr<MemoryRegion> VerbsEndpoint::register_ring(std::byte* memory, std::size_t bytes) {
  return std::make_shared<VerbsMemory>(channel_.device(), memory, bytes);
}

std::shared_ptr<const MemoryRegion> VerbsEndpoint::window_region(const std::byte* memory,
                                                                 std::size_t bytes) {
  return windows_->region(memory, bytes);
}

std::shared_ptr<MemoryRegion> VerbsEndpoint::register_device(const DeviceMemory& memory) {
  return std::make_shared<VerbsMemory>(channel_.device(), memory.dma_buf, memory.offset,
                                       reinterpret_cast<std::uintptr_t>(memory.data), memory.bytes);
}

template <class Call>
bool VerbsEndpoint::attempt(Call&& call) {
  if (failed_) return false;
  try {
    call();
    return true;
  } catch (const Error& error) {
    fail(error.what());
    return false;
  }
}

// --- Sending -------------------------------------------------------------------------------------

Endpoint::Room VerbsEndpoint::room(std::size_t bytes) {
  // The payload, and the header behind it.
  const bool fits =
      connected_ && !failed_ && channel_.has_room(bytes > kInlineBytes ? bytes : 0, 1);
  return fits ? Room::yes : Room::none;
}

void VerbsEndpoint::put(const Put& p) {
  attempt([&] {
    const std::size_t bytes = p.header.bytes;
    const bool is_short = bytes <= kInlineBytes;
    if (!is_short) {
      const auto& memory = *static_cast<const VerbsMemory*>(p.region);
      channel_.write(
          {p.payload, memory.local_key(), p.to.address, p.to.key, bytes, memory.is_of_device()},
          p.notice != 0 ? std::optional(p.notice) : std::nullopt);
    }
    if (p.notice == 0) {
      std::array<std::byte, sizeof(MessageHeader) + kInlineBytes> packet;
      std::memcpy(packet.data(), &p.header, sizeof p.header);
      if (is_short && bytes > 0) std::memcpy(packet.data() + sizeof p.header, p.payload, bytes);
      channel_.send({packet.data(), sizeof p.header + (is_short ? bytes : 0)});
    }
    if (!p.keeps) {
      channel_.report();  // a thread waits for this memory
    } else if (!is_short) {
      if (kept_.empty() || kept_.back().first != p.keeps) kept_.emplace_back(p.keeps, 0);
      kept_.back().second = channel_.appended();
    }
  });
}

bool VerbsEndpoint::send(const MessageHeader& header, const void* control) {
  if (!connected_ || failed_ || !channel_.has_room(0, 1)) return false;
  Packet packet;
  packet.kind = header.kind;
  std::memcpy(packet.rest.data(), control, header.bytes);
  return attempt([&] {
    channel_.send({reinterpret_cast<const std::byte*>(&packet), sizeof packet.kind + header.bytes});
  });
}

bool VerbsEndpoint::submit() {
  attempt([&] { channel_.submit(); });
  return false;
}

bool VerbsEndpoint::is_delivered() {
  return !attempt([&] { channel_.mark(); }) || channel_.completed() == channel_.submitted();
}

// --- Receiving -----------------------------------------------------------------------------------

void VerbsEndpoint::poll() {
  attempt([&] {
    for (const VerbsEvent& event : channel_.poll()) {
      understand(event);
      if (failed_) return;
    }
  });
  while (!kept_.empty() && kept_.front().second <= channel_.completed()) kept_.pop_front();
}

void VerbsEndpoint::understand(const VerbsEvent& event) {
  const std::span<const std::byte> message = event.message;
  Heard heard = Heard::wrong;
  MessageHeader header;
  if (message.empty()) {
    heard = sink_.on_notice(event.notice);
  } else if (message.size() >= sizeof header.kind) {
    std::memcpy(&header.kind, message.data(), sizeof header.kind);
    heard = header.kind == MessageHeader::control ? take_control(message) : take_message(message);
  }
  if (heard == Heard::wrong) fail(kNonsense);
}

Endpoint::Heard VerbsEndpoint::take_control(std::span<const std::byte> message) {
  MessageHeader header;
  header.kind = MessageHeader::control;
  header.bytes = static_cast<std::uint32_t>(message.size() - sizeof header.kind);
  return sink_.on_control(header, message.data() + sizeof header.kind);
}

Endpoint::Heard VerbsEndpoint::take_message(std::span<const std::byte> message) {
  MessageHeader header;
  if (message.size() < sizeof header) return Heard::wrong;
  std::memcpy(&header, message.data(), sizeof header);
  const std::span<const std::byte> payload = message.subspan(sizeof header);
  const bool is_short = header.bytes <= kInlineBytes;
  if (header.more != 0 || payload.size() != (is_short ? header.bytes : 0)) return Heard::wrong;
  if (is_short) {
    const Sink::Target target = sink_.on_header(header);
    if (!target.known) return Heard::wrong;
    if (target.to != nullptr) std::memcpy(target.to, payload.data(), payload.size());
  }
  return sink_.on_message(header);
}

bool VerbsEndpoint::arm() {
  attempt([&] { channel_.arm(); });
  return true;
}

void VerbsEndpoint::drain(bool) {
  if (std::exchange(stopped_, true)) return;
  channel_.stop_and_drain(std::chrono::seconds(1));
  kept_.clear();
}

}  // namespace tutti
