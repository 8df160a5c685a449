// A link between ranks of two hosts: the same ring of slots in private memory at both ends, with a
// wire (wire.h) between them. What is published into the ring here is moved into the ring there, to
// the same place; the receiver's credit comes back the same way:
//
//     Sender -> ring | OutLink ~~~~ wire ~~~~ InLink | ring -> Receiver
//               credit line  <~~~~~~~~~~~~~~~~~  credit line
//
// So the executor sees a connection as ever, there is room exactly where the receiver has room, and
// whatever was published finds its place there. An OutLink's ring keeps each message until the
// receiver is done with it: a wire may send out of it at any time before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/bell.h"
#include "transport/connection.h"
#include "transport/ring_memory.h"

namespace tutti {

class Wire;

/// The end at which a rank of this host sends.
class OutLink final : public RemoteBell {
 public:
  /// `number`: of this link, among those of its wire. `owner`: the bell of the rank that sends.
  OutLink(Wire& wire, std::uint32_t number, ConnectionShape shape, Bell& owner);

  Sender& sender() { return sender_; }
  std::uint32_t number() const { return number_; }
  const std::shared_ptr<RingMemory>& memory() const { return memory_; }
  const ConnectionShape& shape() const { return view_.shape; }

  // The wire's, one thread at a time:
  struct Message {
    std::uint64_t number;      // from 1
    SlotHeader* header;        // tag, bytes, and the payload of a short one
    const std::byte* payload;  // header->bytes
    std::uint64_t at;          // of a longer one: where it lies in the ring's data
  };
  /// Whether something is published that has not been passed.
  bool ready() const;
  /// The first such message. Valid where ready().
  Message next() const;
  /// It is on its way.
  void pass();
  /// The receiver has finished with `consumed` messages, whose data ended at `freed`. False: it
  /// cannot have.
  bool credit(std::uint64_t consumed, std::uint64_t freed);
  /// Whether as much has been said before.
  bool knows(std::uint64_t consumed, std::uint64_t freed) const;
  std::uint64_t passed() const { return passed_; }

  void rung() override;
  void poll() override;
  bool is_flushed() override;

  bool listed = false;  // the wire's note that it is to be looked at

 private:
  Wire& wire_;
  std::uint32_t number_;
  Bell& owner_;
  std::shared_ptr<RingMemory> memory_;
  detail::ConnectionView view_;
  Sender sender_;
  std::size_t index_ = 0;
  std::uint64_t passed_ = 0;
  detail::Cursor cursor_;
};

/// The end at which a rank of this host receives.
class InLink final : public RemoteBell {
 public:
  InLink(Wire& wire, ConnectionShape shape);

  Receiver& receiver() { return receiver_; }
  const std::shared_ptr<RingMemory>& memory() const { return memory_; }
  const ConnectionShape& shape() const { return view_.shape; }
  /// Rung when something has come, once its rank has asked for the link.
  void belongs_to(Bell& owner) { owner_.store(&owner, std::memory_order_release); }
  /// That the sender has given it; 0: it has not opened it yet.
  std::uint32_t number() const { return number_; }
  void opened_as(std::uint32_t number) { number_ = number; }

  // The wire's, one thread at a time:
  /// Where message `number` of `bytes` is to be written, which lies at `at` in the sender's ring.
  /// Null: there can be no such message.
  std::byte* place(std::uint64_t number, std::uint32_t bytes, std::uint64_t at);
  /// It is there. Messages may come in any order; they are published in that of their numbers.
  /// False: one does not lie where it must.
  bool arrived(std::uint64_t number, std::uint32_t tag, std::uint32_t bytes, std::uint64_t at);

  struct Credit {
    std::uint64_t consumed = 0, freed = 0;
    friend bool operator==(const Credit&, const Credit&) = default;
  };
  /// What the receiver has finished with.
  Credit credit() const;
  /// Whether the sender does not know of so much that it should be told at once.
  bool owes_much() const;
  bool owes() const { return credit() != told_; }
  const Credit& told() const { return told_; }
  void told(const Credit& credit) { told_ = credit; }

  void rung() override;
  void poll() override;
  bool is_flushed() override { return true; }

  bool listed = false;

 private:
  struct Arrival {
    std::uint64_t number = 0;
    std::uint64_t at = 0;
    std::uint32_t tag = 0, bytes = 0;
  };
  bool publish(const Arrival& arrival);

  Wire& wire_;
  std::atomic<Bell*> owner_{nullptr};
  std::uint32_t number_ = 0;
  std::shared_ptr<RingMemory> memory_;
  detail::ConnectionView view_;
  Receiver receiver_;
  Sender inlet_;  // publishes what has come
  std::uint64_t published_ = 0;
  std::vector<Arrival> early_;  // by number, those that came before their turn
  Credit told_;
};

}  // namespace tutti
