// A link between ranks of two hosts: the same ring of slots in private memory at both ends, with a
// wire (wire.h) between them. A message that is published into the ring here moves into the ring
// there, to the same place; the receiver's credit comes back the same way:
//
//     Sender -> ring | OutLink ~~~~ wire ~~~~ InLink | ring -> Receiver
//               credit line  <~~~~~~~~~~~~~~~~~  credit line
//
// So the executor sees a connection as ever, there is room exactly where the receiver has room, and
// every published message finds its place there. An OutLink's ring keeps each message until the
// receiver is done with it: a wire may send out of it at any time before.
//
// Where the network can, a long message need not go through the rings. A zero-copy send takes the
// message from the user's memory. Its slot stays reserved: if the sender needs the memory before
// the message has been sent, it copies the message to the slot after all (take_back()). A posted
// receive says in advance to which memory the message goes, instead of its slot (post()). And a
// message may be for memory that the receiver exposes (Wire::expose()): where the network can, it
// writes the message there, and else the message comes into its slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/host/connection.h"
#include "transport/host/doorbell.h"
#include "transport/network/message.h"
#include "transport/network/ring_memory.h"

namespace tutti {

class MemoryRegion;
class Wire;

/// Whether a message of `bytes` may take another connection, and another time, than short ones.
constexpr bool is_long_message(std::size_t bytes) { return bytes >= std::size_t{32} << 10; }

/// How many receives may be posted ahead.
inline constexpr std::size_t kMostPosted = 16;

/// The end at which a rank of this host sends.
class OutLink final : public RemoteDoorbell {
 public:
  /// `number`: of this link, among those of its wire. `owner`: the doorbell of the rank that sends.
  OutLink(Wire& wire, std::uint32_t number, ConnectionShape shape, Doorbell& owner);

  Sender& sender() { return sender_; }
  /// Whether publish_from() may be called.
  bool can_send_from() const { return can_send_from_; }
  /// Whether publish_from() may be called for this memory.
  bool can_send_from(const std::byte* memory, std::size_t bytes) const;
  /// As Sender::publish(), of a message longer than kInlineBytes that lies at `source` and not in
  /// its slot: a zero-copy send. Nobody may write there before has_sent() is true of its number, or
  /// take_back() was called.
  void publish_from(const std::byte* source, std::uint32_t tag, std::uint32_t bytes) {
    elsewhere_[sender_.sent() % elsewhere_.size()].from = source;
    sender_.publish(tag, bytes);
  }
  /// As Sender::publish(), or, where there is a `source`, as publish_from(), of a message that
  /// belongs into memory that the peer exposes as `key`, `offset` bytes from its start.
  void publish_into(std::uint64_t key, std::uint64_t offset, const std::byte* source,
                    std::uint32_t tag, std::uint32_t bytes) {
    elsewhere_[sender_.sent() % elsewhere_.size()] = {source, key, offset};
    sender_.publish(tag, bytes);
  }
  /// All zero-copy sends come out of this memory of a GPU, from before the first one on. It is kept
  /// until they have left; they cannot be taken back.
  void send_out_of(std::shared_ptr<const MemoryRegion> memory) { source_ = std::move(memory); }
  /// Null: out of other memory.
  const std::shared_ptr<const MemoryRegion>& source() const { return source_; }
  /// Whether zero-copy send `number` (the message's, from 1) has left this process.
  bool has_sent(std::uint64_t number) const {
    return sent_.load(std::memory_order_acquire) >= number;
  }
  /// The sender needs memory from `begin` to `end`: messages that lie in it are copied, as far as
  /// they have not been sent.
  void take_back(const std::byte* begin, const std::byte* end);

  std::uint32_t number() const { return number_; }
  const std::shared_ptr<RingMemory>& memory() const { return memory_; }
  const ConnectionShape& shape() const { return view_.shape; }
  std::span<std::byte> data() const { return {view_.data, view_.shape.data_bytes()}; }

  // The wire's, one thread at a time:
  struct Message {
    std::uint64_t number;       // from 1
    SlotHeader* header;         // tag, bytes, and the payload of a short one
    const std::byte* payload;   // header->bytes
    std::uint64_t at;           // of a longer one: where it lies in the ring's data
    bool zero_copy;             // its payload is not there
    std::uint64_t key, offset;  // where it belongs; no key: into its slot
  };
  /// What is published and not passed, from the first such message on.
  class Ahead {
   public:
    explicit Ahead(const OutLink& link)
        : link_(&link), index_(link.index_), passed_(link.passed_), cursor_(link.cursor_) {}
    /// Whether there is another message.
    bool ready() const {
      // acquire: pairs with publish(), so the payload is there.
      return link_->view_.headers[index_].message.load(std::memory_order_acquire) == passed_ + 1;
    }
    /// The message at this place. Valid where ready().
    Message message() const;
    void pass();

   private:
    friend class OutLink;
    const OutLink* link_;
    std::size_t index_;
    std::uint64_t passed_;
    detail::Cursor cursor_;
  };
  Ahead ahead() const { return Ahead(*this); }
  bool ready() const { return ahead().ready(); }
  Message next() const { return ahead().message(); }
  /// The next message is on its way.
  void pass();
  /// The receiver has finished with `consumed` messages, and their data ended at `freed`. False:
  /// that cannot be.
  bool credit(std::uint64_t consumed, std::uint64_t freed);
  /// Whether as much has been said before.
  bool knows(std::uint64_t consumed, std::uint64_t freed) const;
  /// Where the data of the ring that begin at `at` lie in its memory.
  std::size_t data_offset(std::uint64_t at) const {
    return static_cast<std::size_t>(view_.data - memory_->data()) + at;
  }
  /// Message `number`, and all before it, have left this process.
  void sent(std::uint64_t number) { sent_.store(number, std::memory_order_release); }
  /// All has left this process that had not.
  void ring_owner() { ring(owner_); }
  /// As take_back(), of messages that have not been passed.
  void copy_unpassed(const std::byte* begin, const std::byte* end);

  void rung() override;
  void poll() override;
  bool is_flushed() override;

  bool listed = false;  // the wire's note that it is to be looked at
  /// What the wire knows of the peer's end.
  struct Peer {
    bool open = false;  // it knows this link; where the network needs it, its ring lies here:
    RemotePlace ring;
    bool gone = false;                              // it has left the communicator
    std::array<PostedPlace, kMostPosted> posted{};  // by number
    std::uint32_t tag = 0, bytes = 0;               // of the last long message
  } peer;

 private:
  Wire& wire_;
  const bool can_send_from_;
  std::uint32_t number_;
  Doorbell& owner_;
  std::shared_ptr<RingMemory> memory_;
  detail::ConnectionView view_;
  Sender sender_;
  std::size_t index_ = 0;
  std::uint64_t passed_ = 0;
  detail::Cursor cursor_;
  /// By slot: where the message lies, and where it belongs; null, 0: in the slot.
  struct Elsewhere {
    const std::byte* from = nullptr;
    std::uint64_t key = 0, offset = 0;
  };
  std::vector<Elsewhere> elsewhere_;
  std::shared_ptr<const MemoryRegion> source_;
  std::atomic<std::uint64_t> sent_{0};  // of zero-copy sends
};

/// The end at which a rank of this host receives.
class InLink final : public RemoteDoorbell {
 public:
  InLink(Wire& wire, ConnectionShape shape);

  Receiver& receiver() { return receiver_; }

  /// Takes messages as they come, instead of a rank that asks for them.
  class Taker {
   public:
    /// Called with the wire's lock held, by the thread that drives the wire. `payload` is null
    /// where it has been written into exposed memory. False: there can be no such message.
    virtual bool take(std::uint32_t tag, const std::byte* payload, std::uint32_t bytes) = 0;

   protected:
    ~Taker() = default;
  };

  /// A message that has not come, and where it is to be written.
  struct PostedReceive {
    std::uint64_t number = 0;  // from 1
    std::byte* to = nullptr;
    std::uint32_t tag = 0, bytes = 0;
  };

  /// Whether receives may be posted.
  bool can_post() const { return can_post_; }
  /// Whether receives may be posted in this memory.
  bool can_post(const std::byte* memory, std::size_t bytes) const;
  /// A message of this number, tag and length is written there, unless it has begun to come. Nobody
  /// may touch that memory before the message is ready, or withdraw_receives() has returned. The
  /// numbers go on from those of the last call.
  void post(std::span<const PostedReceive> messages);
  /// The last number of a receive that was posted.
  std::uint64_t posted_up_to() const { return posted_up_to_; }
  /// Where the message that is ready was written; null: in its slot.
  const std::byte* received_in_place() const {
    return in_place_[receiver_.received() % in_place_.size()];
  }
  /// Messages that have not come go into their slots.
  void withdraw_receives();
  /// From before the memory is exposed on: the rank looks there for messages that the peer puts
  /// into it (is_in_place()).
  void look_in_exposed() { looks_in_exposed_ = true; }

  const std::shared_ptr<RingMemory>& memory() const { return memory_; }
  const ConnectionShape& shape() const { return view_.shape; }
  std::span<std::byte> data() const { return {view_.data, view_.shape.data_bytes()}; }
  /// Rung when something has come, once its rank has asked for the link.
  void belongs_to(Doorbell& owner) { owner_.store(&owner, std::memory_order_release); }
  /// The number that the sender has given the link; 0: it has not opened it yet.
  std::uint32_t number() const { return number_; }
  void opened_as(std::uint32_t number) { number_ = number; }
  /// With the wire's lock: all that has come and comes is `taker`'s; null: it stays here. False as
  /// Taker::take().
  bool set_taker(Taker* taker);

  // The wire's, one thread at a time:
  /// Where message `number` of `bytes` is to be written, which lies at `at` in the sender's ring.
  /// Null: there can be no such message.
  std::byte* place(std::uint64_t number, std::uint32_t bytes, std::uint64_t at);
  /// Where a receive is posted for it; null: nowhere. The message has begun to come: to be asked
  /// once.
  std::byte* take_posted(std::uint64_t number, std::uint32_t tag, std::uint32_t bytes);
  void set_posted(std::span<const PostedReceive> messages);
  void clear_posted() { posted_ = {}; }
  /// Message `number` comes into its slot.
  void comes_into_slot(std::uint64_t number) {
    in_place_[(number - 1) % in_place_.size()] = nullptr;
  }
  /// Message `number` has been written into exposed memory. False: it cannot have.
  bool comes_into_exposed(std::uint64_t number);
  /// A message is there. Messages may come in any order; they are published in that of their
  /// numbers. False: one does not lie where it must.
  bool arrived(std::uint64_t number, std::uint32_t tag, std::uint32_t bytes, std::uint64_t at);

  std::uint64_t published() const { return published_; }
  /// The last message of which a header has come.
  std::uint64_t begun = 0;
  /// Whether messages have data in the ring, or may soon.
  bool has_data() const { return begun > published_ || receiver_.has_data(); }
  /// The header of the next message, where it has the tag and the length of the last long one.
  MessageHeader same_as_last() const;
  /// Whether message `number` has a posted receive, or has been written into exposed memory. Where
  /// it is ready, also the receiver's to ask.
  bool is_in_place(std::uint64_t number) const {
    return in_place_[(number - 1) % in_place_.size()] != nullptr;
  }
  /// How many messages are being written to posted receives.
  std::size_t receiving_in_place = 0;

  /// What the receiver has finished with.
  Credit credit() const;
  /// Whether the sender does not know of so much that it should be told at once.
  bool owes_much() const;
  /// Whether the sender may lack room that was freed here.
  bool sender_may_wait() const;
  bool owes() const {
    const Credit now = credit();
    return now.consumed != told_.consumed || now.freed != told_.freed;
  }
  /// The credit; from now on the sender knows of it.
  Credit tell() { return told_ = credit(); }

  void rung() override;
  void poll() override;
  bool is_flushed() override { return true; }

  bool listed = false;
  // The wire's: up to which message the peer was told of posted receives, and that it was told of
  // none any more, and has not answered.
  std::uint64_t told_posted_up_to = 0;
  bool withdraws = false;

 private:
  struct Arrival {
    std::uint64_t number = 0;
    std::uint64_t at = 0;
    std::uint32_t tag = 0, bytes = 0;
  };
  bool publish(const Arrival& arrival);
  bool take_all();

  Wire& wire_;
  Taker* taker_ = nullptr;
  const bool can_post_;
  bool looks_in_exposed_ = false;
  std::atomic<Doorbell*> owner_{nullptr};
  std::uint32_t number_ = 0;
  std::shared_ptr<RingMemory> memory_;
  detail::ConnectionView view_;
  Receiver receiver_;
  Sender inlet_;  // publishes what has come
  std::uint64_t published_ = 0;
  detail::Cursor cursor_;                        // of what is published
  std::uint32_t last_tag_ = 0, last_bytes_ = 0;  // of the last long message
  std::vector<Arrival> early_;                   // by number, those that came before their turn
  Credit told_;
  std::array<PostedReceive, kMostPosted> posted_{};  // by number
  std::uint64_t posted_up_to_ = 0;                   // the receiver's
  std::vector<const std::byte*> in_place_;           // by slot
};

}  // namespace tutti
