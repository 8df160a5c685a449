// A network plugin of NCCL as an endpoint (network/endpoint.h): headers and payloads in a stream of
// bytes (pipe.h), as over TCP.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/wait.h"
#include "transport/netplugin/pipe.h"
#include "transport/netplugin/plugin.h"
#include "transport/network/endpoint.h"
#include "transport/network/remote_link.h"
#include "transport/network/wire_choice.h"
#include "transport/sockets/reactor.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kEndWithin = 1s;

class NetPluginMaker final : public EndpointMaker,
                             Reactor::Handler,
                             public std::enable_shared_from_this<NetPluginMaker> {
 public:
  explicit NetPluginMaker(std::unique_ptr<NetPlugin> plugin);
  ~NetPluginMaker() override;
  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int peer, int port) override;
  std::mutex* lock() override { return &mutex_; }

  NetPlugin& plugin() { return *plugin_; }
  /// Sees to the end of a pipe after its endpoint has ended. With the lock held.
  void finish(std::shared_ptr<NetPluginPipe> pipe);

 private:
  void on_events(int, std::uint32_t) override {}
  std::optional<Reactor::Time> on_tick(Reactor::Time now) override;
  void tend() {
    std::erase_if(ending_, [](const auto& pipe) { return pipe->finish(); });
  }

  const std::unique_ptr<NetPlugin> plugin_;
  std::vector<int> devices_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<NetPluginPipe>> ending_;
};

class NetPluginEndpoint final : public Endpoint {
 public:
  NetPluginEndpoint(std::shared_ptr<NetPluginMaker> maker, int device, Sink& sink)
      : Endpoint(sink),
        maker_(std::move(maker)),
        device_(maker_->plugin().devices()[std::size_t(device)].name),
        pipe_(std::make_shared<NetPluginPipe>(maker_->plugin(), device)) {}
  ~NetPluginEndpoint() override { close(false); }

  const Abilities& abilities() const override { return kAbilities; }
  std::string carrier() const override {
    return fmt::format("plugin ({}, {})", maker_->plugin().name(), device_);
  }
  std::vector<std::byte> address() override;
  void connect(std::span<const std::byte> address) override;
  Room room(std::size_t bytes) override;
  void put(const Put& put) override;
  bool send(const MessageHeader& header, const void* control) override;
  bool submit() override;
  void poll() override;
  std::uint64_t appended() const override { return puts_; }
  std::uint64_t completed() const override { return left_ == 0 ? puts_ : puts_ - 1; }
  bool is_flushed() override { return failed_ || (left_ == 0 && pipe_->is_sent()); }
  void take_back(const std::byte* begin, const std::byte* end) override;
  void redirect(std::uint32_t link) override;
  void close(bool in_peace) override;

 private:
  static constexpr Abilities kAbilities{
      .cancels = true, .wakes = false, .least_direct = kZeroCopyBytes};

  template <class Do>
  void guarded(Do&& call);
  void fail_unless_over(const std::string& why) {
    // After its last word a peer may close as it likes.
    fail(heard_last_ ? "" : why);
  }
  /// Room for a header with so much behind it in one piece.
  std::byte* record(const MessageHeader& header, std::size_t behind);
  void write_payload();
  bool take(std::span<const std::byte> bytes);
  bool take_header(std::span<const std::byte> bytes);
  bool heed(Heard heard);

  const std::shared_ptr<NetPluginMaker> maker_;
  const std::string device_;
  std::shared_ptr<NetPluginPipe> pipe_;  // null: closed
  bool heard_last_ = false;

  // The message that is being written:
  const std::byte* payload_ = nullptr;
  std::size_t left_ = 0;
  std::shared_ptr<void> keeps_;
  std::vector<std::byte> copy_;  // what is left of it, once it was taken back
  std::uint64_t puts_ = 0;
  bool starved_ = false;
  // that is being received:
  MessageHeader header_;
  Sink::Target target_;
  std::size_t missing_ = 0;
};

// --- How it comes about, and ends ----------------------------------------------------------------

template <class Do>
void NetPluginEndpoint::guarded(Do&& call) {
  if (failed_ || pipe_ == nullptr) return;
  try {
    call();
  } catch (const Error& error) {
    fail_unless_over(error.what());
  }
}

std::vector<std::byte> NetPluginEndpoint::address() {
  std::vector<std::byte> bytes(sizeof(NetPluginPipe::Address));
  guarded([&] {
    const NetPluginPipe::Address mine = pipe_->address();
    std::memcpy(bytes.data(), &mine, sizeof mine);
  });
  return bytes;
}

void NetPluginEndpoint::connect(std::span<const std::byte> address) {
  NetPluginPipe::Address theirs;
  if (address.size() != sizeof theirs) return fail(kNonsense);
  std::memcpy(&theirs, address.data(), sizeof theirs);
  guarded([&] { pipe_->connect(theirs); });
}

void NetPluginEndpoint::close(bool in_peace) {
  if (pipe_ == nullptr) return;
  if (in_peace && !failed_) {
    pipe_->end();
    maker_->finish(std::move(pipe_));
  } else {
    pipe_->close();
  }
  pipe_.reset();
  failed_ = true;
}

// --- Sending -------------------------------------------------------------------------------------

std::byte* NetPluginEndpoint::record(const MessageHeader& header, std::size_t behind) {
  const std::span<std::byte> room = pipe_->room(sizeof header + behind);
  std::memcpy(room.data(), &header, sizeof header);
  pipe_->wrote(sizeof header + behind);
  return room.data() + sizeof header;
}

Endpoint::Room NetPluginEndpoint::room(std::size_t) {
  if (!failed_ && left_ == 0 && !pipe_->room(sizeof(MessageHeader)).empty()) return Room::yes;
  starved_ = true;
  return Room::none;
}

void NetPluginEndpoint::put(const Put& put) {
  record(put.header, 0);
  ++puts_;
  payload_ = put.payload;
  left_ = put.header.bytes;
  keeps_ = put.keeps;
  write_payload();
}

void NetPluginEndpoint::write_payload() {
  while (left_ > 0) {
    const std::span<std::byte> room = pipe_->room(1);
    if (room.empty()) return;
    const std::size_t bytes = std::min(left_, room.size());
    std::memcpy(room.data(), payload_, bytes);
    pipe_->wrote(bytes);
    payload_ += bytes;
    left_ -= bytes;
  }
  keeps_.reset();
}

bool NetPluginEndpoint::send(const MessageHeader& header, const void* control) {
  if (failed_ || left_ > 0 || pipe_->room(sizeof header + header.bytes).empty()) {
    starved_ = true;
    return false;
  }
  std::memcpy(record(header, header.bytes), control, header.bytes);
  return true;
}

bool NetPluginEndpoint::submit() {
  guarded([&] {
    pipe_->move();
    write_payload();
    pipe_->move();
  });
  if (failed_ || left_ > 0 || pipe_->room(sizeof(MessageHeader) + kMostControl).empty()) {
    return false;
  }
  return std::exchange(starved_, false);
}

void NetPluginEndpoint::take_back(const std::byte* begin, const std::byte* end) {
  if (left_ == 0 || payload_ >= end || begin >= payload_ + left_) return;
  copy_.assign(payload_, payload_ + left_);
  payload_ = copy_.data();
  keeps_.reset();
}

// --- Receiving -----------------------------------------------------------------------------------

void NetPluginEndpoint::poll() {
  submit();
  guarded([&] {
    for (auto bytes = pipe_->came(); !bytes.empty() && take(bytes); bytes = pipe_->came()) {
    }
    if (!failed_ && pipe_ != nullptr && pipe_->has_ended()) fail("");
  });
  submit();
}

bool NetPluginEndpoint::take(std::span<const std::byte> bytes) {
  if (missing_ == 0) return take_header(bytes);
  const std::size_t count = std::min(missing_, bytes.size());
  if (target_.to != nullptr) {
    std::memcpy(target_.to + (header_.bytes - missing_), bytes.data(), count);
  }
  missing_ -= count;
  pipe_->took(count);
  return missing_ > 0 || heed(sink_.on_message(header_));
}

bool NetPluginEndpoint::take_header(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof header_) return heed(Heard::wrong);
  std::memcpy(&header_, bytes.data(), sizeof header_);
  const std::size_t behind = header_.kind == MessageHeader::control ? header_.bytes : 0;
  if (bytes.size() - sizeof header_ < behind || header_.more != 0) return heed(Heard::wrong);
  pipe_->took(sizeof header_ + behind);
  if (header_.kind == MessageHeader::control) {
    return heed(sink_.on_control(header_, bytes.data() + sizeof header_));
  }
  target_ = header_.kind == MessageHeader::message ? sink_.on_header(header_) : Sink::Target{};
  if (!target_.known) return heed(Heard::wrong);
  missing_ = header_.bytes;
  return missing_ > 0 || heed(sink_.on_message(header_));
}

bool NetPluginEndpoint::heed(Heard heard) {
  if (heard == Heard::last) heard_last_ = true;
  if (heard == Heard::wrong) fail_unless_over(kNonsense);
  return !failed_ && pipe_ != nullptr;
}

void NetPluginEndpoint::redirect(std::uint32_t link) {
  if (missing_ > 0 && header_.link == link) target_ = sink_.on_header(header_);
}

// --- What all of a rank share --------------------------------------------------------------------

NetPluginMaker::NetPluginMaker(std::unique_ptr<NetPlugin> plugin) : plugin_(std::move(plugin)) {
  for (std::size_t d = 0; d < plugin_->devices().size(); ++d) {
    if (plugin_->devices()[d].takes_host_memory) devices_.push_back(static_cast<int>(d));
  }
  if (devices_.empty()) {
    throw Error(ErrorCode::system,
                fmt::format("no device of the network plugin {} takes memory of the host",
                            plugin_->description()));
  }
}

NetPluginMaker::~NetPluginMaker() {
  Reactor::instance().forget(*this);
  const auto have_ended = [&] {
    tend();
    return ending_.empty();
  };
  wait_until(deadline_after(kEndWithin), have_ended, OnStop::goes_on);
  for (const auto& pipe : ending_) pipe->close();
}

std::unique_ptr<Endpoint> NetPluginMaker::make(Endpoint::Sink& sink, int peer, int) {
  const int device = devices_[static_cast<std::size_t>(peer) % devices_.size()];
  return std::make_unique<NetPluginEndpoint>(shared_from_this(), device, sink);
}

void NetPluginMaker::finish(std::shared_ptr<NetPluginPipe> pipe) {
  if (pipe->finish()) return;
  ending_.push_back(std::move(pipe));
  Reactor::instance().keep_awake(*this);
}

std::optional<Reactor::Time> NetPluginMaker::on_tick(Reactor::Time now) {
  const std::lock_guard lock(mutex_);
  tend();
  if (ending_.empty()) return std::nullopt;
  return now + 1ms;
}

}  // namespace

std::shared_ptr<EndpointMaker> make_plugin_endpoints() {
  return std::make_shared<NetPluginMaker>(NetPlugin::load());
}

std::string plugin_text() {
  const auto plugin = NetPlugin::load();
  std::string text = plugin->description();
  for (const NetPlugin::Device& device : plugin->devices()) text += ", " + device.name;
  return text;
}

}  // namespace tutti
