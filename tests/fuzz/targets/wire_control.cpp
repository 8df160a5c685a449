// What a rank of another host says over a wire, whatever network carries it: headers of messages,
// control messages, notices, in any order, with any numbers, while this side opens links, sends,
// receives, exposes memory and leaves. The wire goes on or ends; it gives out places in its own
// memory alone, all of which is written to here.
#include <array>
#include <deque>
#include <memory>

#include "tests/fuzz/target.h"
#include "tests/transport/wire_ends.h"

namespace tutti::fuzz::wire_control {
namespace {

using test::End;

/// So much memory is registered.
struct Region final : MemoryRegion {
  std::uint32_t remote_key() const override { return 7; }
};

/// Says to its sink what the input says. `kind`: 0: as TCP or a plugin; 1: as UCX, where payloads
/// are complete later, in any order; 2: as verbs, where the peer writes.
class FuzzedEndpoint final : public Endpoint {
 public:
  FuzzedEndpoint(Sink& sink, unsigned kind) : Endpoint(sink), kind_(kind) {
    abilities_.one_sided = kind == 2;
    abilities_.ordered = kind != 1;
    abilities_.cancels = kind == 0;
    abilities_.runs_from = kind == 1 ? 4096 : SIZE_MAX;
    abilities_.least_direct = 16384;
    abilities_.confirms = kind == 2;
  }
  const Abilities& abilities() const override { return abilities_; }
  std::string carrier() const override { return "fuzz"; }
  std::shared_ptr<MemoryRegion> register_ring(std::byte*, std::size_t) override {
    return kind_ == 2 ? std::make_shared<Region>() : nullptr;
  }
  std::shared_ptr<MemoryRegion> expose(std::uint64_t, std::byte*, std::size_t) override {
    return kind_ == 2 ? std::make_shared<Region>() : nullptr;
  }
  Room room(std::size_t) override { return Room::yes; }
  void put(const Put& put) override {
    // It reads all of it.
    for (std::size_t i = 0; i < put.header.total_bytes(); ++i)
      read_ += static_cast<unsigned>(put.payload[i]);
    ++puts_;
  }
  bool send(const MessageHeader&, const void*) override { return true; }
  bool submit() override { return false; }
  std::uint64_t appended() const override { return puts_; }
  std::uint64_t completed() const override { return puts_; }
  bool is_flushed() override { return true; }
  void redirect(std::uint32_t link) override {
    for (Coming& c : coming_) {
      if (c.header.link == link) c.target = sink_.on_header(c.header);
    }
  }
  void close(bool) override { failed_ = true; }

  /// The next poll() brings this.
  void will_say(Input* input) { input_ = input; }
  void poll() override {
    if (failed_ || input_ == nullptr) return;
    Input& in = *std::exchange(input_, nullptr);
    switch (in.byte() % 4) {
      case 0:
        return message(in.value<MessageHeader>(), static_cast<std::byte>(in.byte()));
      case 1: {
        MessageHeader header;
        header.kind = MessageHeader::control;
        header.sequence = in.value<std::uint32_t>();
        const auto bytes = in.value<std::array<std::byte, sizeof(Control)>>();
        header.bytes = sizeof bytes;
        return heed(sink_.on_control(header, bytes.data()));
      }
      case 2:
        if (kind_ == 2) return heed(sink_.on_notice(in.value<std::uint32_t>()));
        [[fallthrough]];
      default:
        if (coming_.empty()) return;
        const std::size_t which = in.byte() % coming_.size();
        const Coming c = coming_[which];
        coming_.erase(coming_.begin() + static_cast<std::ptrdiff_t>(which));
        arrived(c, std::byte{1});
    }
  }

 private:
  struct Coming {
    MessageHeader header;
    Sink::Target target;
  };

  void heed(Heard heard) {
    if (heard == Heard::wrong) fail(kNonsense);
  }
  void arrived(const Coming& c, std::byte data) {
    if (c.target.keeps) {  // a ring; sanitizers do not know where it ends
      const auto& ring = *static_cast<const RingMemory*>(c.target.keeps.get());
      require(c.target.to >= ring.data() &&
                  c.target.to + c.header.total_bytes() <= ring.data() + ring.size(),
              "a message lies in its ring");
    }
    if (c.target.to != nullptr)
      std::memset(c.target.to, static_cast<int>(data), c.header.total_bytes());
    heed(sink_.on_message(c.header));
  }
  /// As the endpoints do.
  void message(const MessageHeader& header, std::byte data) {
    if (kind_ == 2) {
      if (header.more != 0) return fail(kNonsense);
      if (header.bytes > kInlineBytes) return heed(sink_.on_message(header));
    }
    if (kind_ == 0 && (header.kind != MessageHeader::message || header.more != 0))
      return fail(kNonsense);
    const Coming c{header, sink_.on_header(header)};
    if (!c.target.known || (kind_ != 2 && header.kind != MessageHeader::message))
      return fail(kNonsense);
    if (kind_ == 1 && header.total_bytes() > 4096) return coming_.push_back(c);
    arrived(c, data);
  }

  const unsigned kind_;
  Abilities abilities_;
  Input* input_ = nullptr;
  std::deque<Coming> coming_;
  std::uint64_t puts_ = 0, read_ = 0;
};

constexpr ConnectionShape kShape{4, 32768, 2};

void run(std::string_view input) {
  Input in(input);
  const unsigned kind = in.byte() % 3;
  FuzzedEndpoint* endpoint = nullptr;
  // Users' memory: longer than the wire, as it is with users.
  std::vector<std::byte> exposed(4096), posted(65536);
  End end([&](Endpoint::Sink& sink) {
    auto made = std::make_unique<FuzzedEndpoint>(sink, kind);
    endpoint = made.get();
    return made;
  });
  end.wire.connect({});
  end.wire.start();
  InLink* link = nullptr;
  OutLink* out = nullptr;
  bool is_exposed = false;
  for (int i = 0; i < 64 && !in.empty() && !end.is_closed; ++i) {
    const unsigned what = in.byte();
    switch (what % 16) {
      case 0:  // this rank asks for the link
        try {
          if (link == nullptr) link = &end.in(0, kShape);
        } catch (const Error& error) {
          require(error.code() == ErrorCode::mismatch, "the peer has a link of another shape");
          return;
        }
        break;
      case 1:
        if (out == nullptr) out = &end.out(0, kShape);
        break;
      case 2:  // sends, short or long
        if (out != nullptr) test::try_send(*out, i, what & 16 ? 20000 : 8);
        break;
      case 3:  // receives all that there is
        while (link != nullptr && link->receiver().ready()) {
          Receiver& receiver = link->receiver();
          const std::uint32_t bytes = receiver.bytes();
          require(bytes <= kShape.slot_bytes, "a message fits into its slot");
          const std::byte* const at = bytes > kInlineBytes && link->received_in_place() != nullptr
                                          ? nullptr
                                          : receiver.slot(bytes);
          unsigned sum = 0;
          for (std::size_t b = 0; at != nullptr && b < bytes; ++b)
            sum += static_cast<unsigned>(at[b]);
          require(sum != 1U << 31, "it can be read");
          receiver.free();
          link->rung();
        }
        break;
      case 4:  // wants the next message elsewhere
        if (link != nullptr && link->can_post() && (what & 16) == 0) {
          const std::uint64_t next =
              std::max(link->receiver().received(), link->posted_up_to()) + 1;
          const InLink::PostedReceive want{next, posted.data(), what >> 5, 32768};
          link->post({&want, 1});
        } else if (link != nullptr) {
          if (kind == 0) link->withdraw_receives();  // of the others, it waits for the peer
        }
        break;
      case 5:
        if (!is_exposed) end.wire.expose(77, exposed.data(), exposed.size());
        is_exposed = true;
        break;
      case 6:  // leaves the communicator
        if ((what & 0xf0) != 0xf0) break;
        end.wire.close(1);
        link = nullptr;
        out = nullptr;
        break;
      default:
        endpoint->will_say(&in);
        // The peer may want a ring for which there is no memory.
        if (!accepts(ErrorCode::system, [&] { end.wire.poll_and_tell(); })) return;
    }
  }
  end.wire.shut();
}

std::vector<std::string> seeds() {
  const auto say = [](char what, const std::string& rest) {
    return std::string{'\x0f', what} + rest;
  };
  std::uint32_t sequence = 0;
  const auto control = [&](const Control& c) {
    return say(1, text_of_bytes(++sequence) + text_of_bytes(c));
  };
  const auto message = [&](std::uint64_t number, std::uint32_t bytes, std::uint64_t at) {
    MessageHeader h;
    h.link = 1;
    h.bytes = bytes;
    h.number = number;
    h.at = at;
    h.sequence = ++sequence;
    return say(0, text_of_bytes(h) + "x");
  };
  std::vector<std::string> all;
  for (char kind = 0; kind < 3; ++kind) {
    sequence = 0;
    Control open;
    open.kind = Control::open;
    open.link = 1;
    open.opening = {{1, 0}, kShape.slots, kShape.slot_bytes, kShape.most_full};
    Control opened, credits, left, expose, bye;
    opened.kind = Control::opened;
    opened.link = 1;
    credits.kind = Control::credits;
    credits.credit = {};
    credits.credit[0] = {1, 0, 1, 0};
    left.kind = Control::left;
    left.communicator = 1;
    expose.kind = Control::expose;
    expose.exposed = {5, 4096, {4096, 7, 0}};
    bye.kind = Control::bye;
    all.push_back(std::string{kind, 1, 2} + control(opened) + control(open) + message(1, 8, 0) +
                  '\0' + '\3' + message(2, 20000, 0) + say(3, std::string(1, '\0')) + '\3' +
                  control(credits) + control(left) + control(bye));
    sequence = 0;
    all.push_back(std::string{kind, 0, 4} + control(open) + message(1, 32768, 0) +
                  say(3, std::string(1, '\0')) + '\3' + control(expose) + '\5' + "\xf6" +
                  control(left));
    if (kind == 2) {
      sequence = 0;
      MessageHeader h;
      h.kind = MessageHeader::placed;
      h.link = 1;
      h.bytes = 4096;
      h.number = 1;
      all.push_back(std::string{kind, 0} + control(open) + say(0, text_of_bytes(h) + "x") +
                    say(2, text_of_bytes(std::uint32_t{1U << 31 | 1})) + '\3');
    }
  }
  return all;
}

const Registered target({"wire_control", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::wire_control
