// Which receive gets which message: the receives of this rank that wait for one, and the messages
// that have come before a receive for them. Both by communicator ("context"), source and tag; of
// several that match, the oldest one. Receives from any source or with any tag stand in a list, all
// others are found by a hash. The mail's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <unordered_map>

#include "bindings/mpi/record.h"

namespace tutti::mpi {

struct Request;

struct Envelope {
  std::uint64_t context = 0;
  std::int32_t source = 0;
  std::int32_t tag = 0;
};

/// A message without a receive.
struct Arrived {
  Envelope envelope;
  int peer = 0;                       // that sent it, by its number in the job
  std::uint64_t bytes = 0;            // of the message
  std::unique_ptr<std::byte[]> data;  // eager: a copy
  bool eager = false;
  Rendezvous rendezvous;   // otherwise
  Request* own = nullptr;  // or the send of this rank to itself
};

class Matching {
 public:
  void post(Request& receive);
  /// Takes the oldest receive that waits for the message; null: none.
  Request* take_receive(const Envelope& envelope);
  /// Takes a receive back; false: it is not there.
  bool withdraw(Request& receive);

  void keep(Arrived message);
  /// The oldest message for a receive; `source` and `tag` may be any. Null: none.
  const Arrived* find(std::uint64_t context, int source, int tag);
  /// The same, and takes it.
  std::unique_ptr<Arrived> take(std::uint64_t context, int source, int tag);

  /// Of a communicator that is freed: what it has left of tables.
  void forget(std::uint64_t context);

  std::size_t waiting() const { return waiting_; }

 private:
  using Key = std::uint64_t;  // source and tag
  static Key key(int source, int tag) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(source)) << 32 |
           static_cast<std::uint32_t>(tag);
  }
  struct Posted {
    Request* receive = nullptr;
    std::uint64_t number = 0;  // they grow
  };
  using Messages = std::list<std::unique_ptr<Arrived>>;
  struct Context {
    std::unordered_map<Key, std::deque<Posted>> exact;
    std::list<Posted> wild;
    Messages arrived;  // in their order
    std::unordered_map<Key, std::deque<Messages::iterator>> by_key;
  };
  Context& context(std::uint64_t id);
  Messages::iterator look(Context& c, int source, int tag);

  std::unordered_map<std::uint64_t, Context> contexts_;
  std::uint64_t newest_id_ = 0;
  Context* newest_ = nullptr;
  std::uint64_t number_ = 0;
  std::size_t waiting_ = 0;
};

}  // namespace tutti::mpi
