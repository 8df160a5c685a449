// A wire over UCX: each message of a link is an active message, whose header says where it belongs.
// A short one comes with its payload, which is copied into the receiver's ring; of a long one UCX
// brings the payload straight there (rendezvous).
//
// Long messages need not go through the rings (remote_link.h): what is lent is sent from where it
// lies, and a rendezvous brings what is expected there. UCX cannot be stopped in the middle. So
// memory that is wanted back is waited for, and where its peer does not come, the worker rests for
// good.
//
// UCX is fast with long messages only: with every one it exchanges a few short ones, and over TCP
// 1 MiB takes it as long as 6 x 64 KiB, which is what fits into a slot. So when two long ones are
// under way, the next waits, and takes along what has been published behind it meanwhile (a run).
//
// UCX keeps no order between messages. So a message of a link has its number, the first is sent
// when the peer has said that it knows the link, and what says "nothing more comes" says how many
// messages were sent before it, and counts when those have come.
//
// A message finds its wire by a key that the receiver has given over the control stream, which
// proves who is at its other end: UCX itself asks nobody who he is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/ucx/worker.h"
#include "transport/wire.h"

namespace tutti {

class UcxWire final : public Wire {
 public:
  static constexpr unsigned kMessageId = 1;

  UcxWire(Owner& owner, std::shared_ptr<UcxWorker> worker);
  ~UcxWire() override;

  std::string carrier() const override;
  std::shared_ptr<RingMemory> make_ring(std::size_t bytes) override;
  bool lends() const override { return true; }

  bool needs_stream() const override { return false; }
  std::vector<std::byte> hello() override;
  void greet(std::span<const std::byte> hello) override;
  void peer_ended() override { peer_ended_.store(true, std::memory_order_release); }
  void shut() override;
  void say_bye() override;
  bool is_delivered() override;

  /// The reactor's, with the lock held: sends what is to be sent, and hands over which
  /// communicators the peer has left. True: something is left to be sent.
  bool serve(std::vector<std::pair<Owner*, std::uint64_t>>& left);
  /// With the lock held, when UCX has finished with something: sends what has waited for that.
  void push_on() {
    if (!closed_) push();
  }
  /// With the lock held: it is over.
  void fail(const std::string& why) { close_with(why); }
  /// UCX's callback; `worker` is whose it is.
  static ucs_status_t on_message(void* worker, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);

 private:
  /// What a link's receiver has finished with.
  struct Credit {
    std::uint32_t link = 0;  // 0: none
    std::uint32_t unused = 0;
    std::uint64_t consumed = 0, freed = 0;
  };
  /// In front of every message.
  struct Header {
    std::uint64_t key = 0;
    Frame frame;
    Credit credit;  // goes along
    // Of a run: how many more messages of the link lie behind the first, with the same tag, and the
    // bytes of the last; the others are as long as the first.
    std::uint32_t more = 0, last_bytes = 0;

    std::uint64_t bytes() const {
      return more == 0 ? frame.bytes : std::uint64_t{more} * frame.bytes + last_bytes;
    }
    /// Of message `i` of a run.
    Frame at(std::uint32_t i) const;
  };
  struct Hello {
    std::uint64_t key = 0;  // and the worker's address
  };
  // Beside Frame::Kind:
  static constexpr std::uint32_t kOpened = 100;   // the sender knows the peer's link `link`
  static constexpr std::uint32_t kAllCame = 101;  // all that was sent before the bye
  static constexpr std::size_t kCredits = 16;
  // Over TCP what fits into one of its segments, 64 KiB with the headers, is faster without a
  // rendezvous, whatever UCX believes (1.13: from 20 KiB on).
  static constexpr std::uint32_t kLongBytesOverTcp = 61440;
  /// What UCX is at. It outlives its wire where UCX has not finished by then.
  struct Request {
    UcxWire* wire = nullptr;      // null: it is gone
    UcxWorker* worker = nullptr;  // whose it is then
    Header header;
    std::array<Credit, kCredits> credits;
    Opening opening;
    std::shared_ptr<RingMemory> memory;  // that is read or written; null: it is not a ring's, but
    std::byte* landing = nullptr;        // is written here, or
    const std::byte* lent = nullptr;     // is read here
    OutLink* out = nullptr;              // which has lent it; null: it has ended
    InLink* link = nullptr;              // into which; null: it has ended
    std::size_t index = 0;               // among the wire's
    bool calling = false, ended = false;
    bool is_long = false;  // sends a long message
  };
  struct Said {
    Frame frame;
    Opening opening;
  };
  struct End {
    std::uint64_t group;
    std::uint64_t after;  // so many messages
    bool bye;
  };

  void push() override;
  void take() override;
  void announce(OutLink& link, const Opening& opening) override;
  void say_left(std::uint64_t group) override;
  bool has_unsent() const override { return !said_.empty(); }
  bool has_gone() override { return requests_.empty(); }
  bool keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) override;
  bool stop_landing(InLink& link) override;
  void give_up(const std::string& why) override;
  void let_go() override;
  void drop(OutLink& link) override;
  void drop(InLink& link) override;

  void push_said();
  bool push_messages();
  /// Passes what can go with the first message of `header`, which lies at `payload` and `link` has
  /// passed.
  void extend(Header& header, OutLink& link, const std::byte* payload);
  bool is_landing() const;
  /// Whether the peer has ended; then all that was on its way has come.
  bool is_over();
  /// `done` was lent, and is sent.
  void end_loan(const Request& done);
  void push_credits(bool all);
  Credit next_credit(bool any);
  Request* new_request();
  /// Has UCX do `call`, of which it tells `r`'s callback. True: it will; false: it is done.
  template <class Call>
  bool start(Request* r, ucp_request_param_t params, Call&& call);
  void send(Request* r, const void* data, std::size_t bytes);
  static void end(Request* r);

  /// All of these: false, the peer has sent what cannot be. `taken`: UCX brings the data later.
  bool incoming(const Header& header, void* data, std::size_t bytes, bool rendezvous, bool& taken);
  bool take_message(const Header& header, void* data, bool rendezvous, bool& taken);
  /// Where the messages of `header` land; null: not in one piece, so in their slots.
  static std::byte* landing(InLink& link, const Header& header);
  bool take_credit(const Credit& credit);
  bool came(InLink* link, const Header& header);
  void settle();
  void ended();

  void connect(std::span<const std::byte> address);
  void close_with(const std::string& why);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_received(void* request, ucs_status_t status, std::size_t bytes, void* user);
  static void on_error(void* user, ucp_ep_h ep, ucs_status_t status);

  const std::shared_ptr<UcxWorker> worker_;
  const UcxLibrary& ucx_;
  std::uint64_t key_ = 0, peer_key_ = 0;
  ucp_ep_h ep_ = nullptr;
  std::string carriers_;  // UCX's transports to the peer, as far as is known
  std::uint32_t long_bytes_ = 0;
  std::atomic<bool> peer_ended_{false};
  bool drained_ = false;  // what was on its way from a peer that has ended has come
  bool failed_ = false, said_bye_ = false, peer_bye_ = false, acknowledged_ = false;
  std::deque<Said> said_;
  std::set<std::uint32_t> open_;       // links that the peer knows
  std::uint64_t sent_ = 0, came_ = 0;  // messages of links, and credits
  std::vector<End> ends_;
  std::vector<Request*> requests_;  // that UCX has not finished
  std::size_t long_ = 0;            // of those, that send a long message
  std::vector<std::unique_ptr<Request>> spare_;
};

}  // namespace tutti
