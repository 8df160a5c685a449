// A wire over RDMA. Each link's rings are registered memory on both hosts, and what is published
// into the sender's is written into the receiver's, to the same place, by the sender's device:
//
//     sender's ring                                             receiver's ring
//     data            -- WRITE ------------------------------>  data
//     header          -- WRITE_WITH_IMM (tag, bytes, payload)-> header, but for its number: that is
//                                                               stored here when the notice comes
//     credit  <- (here, when the notice has come)  <-- WRITE_WITH_IMM --  credit
//
// So a message is visible to its Receiver once the notice of it is, which is what RDMA guarantees
// (channel.h), and not when its bytes happen to be there; no byte is copied by a processor. A short
// message is one write, inline. So is a long one of the same tag and length as the last on its
// link: its header would say nothing new, so the notice goes with the data. Credits come into a
// line behind the ring and are copied from there after a check: so a Sender goes by nothing that
// has not been looked at, and its rank can be woken.
//
// Long messages need not go through the rings (remote_link.h), where they lie in windows: the
// device reads what is lent where it lies, and writes to where the peer has said that it wants the
// message, in time:
//
//     what is expected  <- (a message)  <-- where, and its key --
//     lent memory    -- WRITE_WITH_IMM ----------------------->  expected memory
//
// A device cannot be stopped in the middle. So lent memory is free when the device says that the
// peer's has it all, and who takes back what it expects waits until the peer has heard so.
//
// There are never more notices of a link under way than it has slots, in either direction, as a
// credit is for one message at least.
//
// A link needs to know where the peer's ring is before it can write: what says that, and what else
// a wire has to say, goes as messages on the same queue pair, so in order with the data.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/verbs/channel.h"
#include "transport/verbs/windows.h"
#include "transport/wire.h"

namespace tutti {

class VerbsWire final : public Wire {
 public:
  /// `peer`: its rank, for errors. Throws Error(system).
  VerbsWire(Owner& owner, std::shared_ptr<VerbsWindows> windows, int peer,
            const VerbsOptions& options = VerbsOptions::from_settings());
  ~VerbsWire() override;

  std::string carrier() const override;
  std::shared_ptr<RingMemory> make_ring(std::size_t bytes) override;
  bool lends() const override { return true; }
  bool reaches(const std::byte* memory, std::size_t bytes) override;

  bool needs_stream() const override { return false; }
  /// Its queue pair's address.
  std::vector<std::byte> hello() override;
  /// The peer may send from here on.
  void greet(std::span<const std::byte> hello) override;
  void start() override;
  void shut() override;
  void say_bye() override;
  /// When it is, the process may end. is_flushed() says only that it is the device's matter.
  bool is_delivered() override;

  int descriptor() const override { return channel_.fd(); }
  bool arm() override;

 private:
  /// Of a ring: what this side's device and the peer need to reach it.
  struct Registration;
  /// Where a message is to be written, instead of its slot.
  struct Landing {
    std::uint64_t number = 0;  // of the message; 0: nowhere
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t tag = 0, bytes = 0;
    std::uint32_t unused = 0;
  };
  /// What a wire says of itself.
  struct Said {
    enum Kind : std::uint32_t { open = 1, place, gone, left, bye, expects, forget, forgotten };
    std::uint32_t kind = 0;
    std::uint32_t link = 0;     // that the sender of messages has numbered
    std::uint64_t address = 0;  // of the sender's ring (open), of the receiver's (place)
    std::uint32_t key = 0;      // to write there
    std::uint32_t unused = 0;
    Opening opening;                  // left: name.group alone
    std::array<Landing, 2> landings;  // expects
  };
  static_assert(sizeof(Said) <= VerbsChannel::kMostMessage);
  /// Memory of links that were closed here, into which the peer, or out of which our device, may be
  /// about to write.
  struct Kept {
    std::uint64_t group;
    std::uint64_t until;  // this request is complete
    std::shared_ptr<RingMemory> memory;
  };

  void push() override;
  void take() override;
  void announce(OutLink& link, const Opening& opening) override;
  void say_left(std::uint64_t group) override;
  bool has_unsent() const override { return !said_.empty(); }
  bool has_gone() override { return lent_.empty(); }
  bool keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) override;
  void tell_expected(InLink& link, std::span<const InLink::Expected> messages) override;
  bool stop_landing(InLink& link) override;
  void give_up(const std::string& why) override { close_with(why); }
  void let_go() override;
  void drop(OutLink& link) override;
  void drop(InLink& link) override;

  void push_said();
  void push_credits();
  /// Whether it may lack room that was freed here.
  static bool sender_may_wait(const InLink& link);
  void push_messages();
  /// False: there is no room.
  bool push_message(OutLink& link);
  /// False: the peer has said what cannot be.
  bool understand(const VerbsEvent& event);
  bool understand(const Said& said);
  bool take_message(InLink& link, bool as_before, bool landed);
  /// Lent messages of which the peer has all.
  void end_loans();
  bool take_credit(OutLink& link);
  bool may_send() const { return started_ && !closed_; }
  void keep(const std::shared_ptr<RingMemory>& memory);
  void free_kept();
  void close_with(const std::string& why);

  /// A message that the device sends out of memory that is lent.
  struct Lent {
    OutLink* link;
    std::uint64_t number;
    const std::byte* from;
    std::uint32_t bytes;
    std::uint64_t request;  // when it is complete, it is over
  };

  const std::shared_ptr<VerbsWindows> windows_;
  VerbsChannel channel_;
  bool greeted_ = false, started_ = false, stopped_ = false;
  std::uint64_t came_ = 0;  // of what the peer did, and of loans that are over
  std::deque<Said> said_;
  std::deque<Lent> lent_;
  std::vector<Kept> kept_;
  std::vector<std::uint64_t> groups_left_;  // that the peer has left
};

}  // namespace tutti
