// One meeting of the ranks of a job, without sockets: who has joined, what is wrong, when it is
// over. The first failure is final and every rank gets the same one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"

namespace tutti {

class RendezvousRound {
 public:
  /// `from` is where the rank's connection comes from, for messages. Fields of the hello are not
  /// trusted. An error returned here is about this hello alone; the round goes on without it.
  std::optional<Error> join(const wire::Hello& hello, const std::string& from);
  /// A rank that had joined is gone before the round was complete.
  void leave(int rank);
  /// The round's deadline has passed.
  void expire();

  bool empty() const { return members_.empty(); }
  bool complete() const {
    return !failure_ && size_ > 0 && members_.size() == static_cast<std::size_t>(size_);
  }
  const std::optional<Error>& failure() const { return failure_; }
  /// When the first of its members gives up.
  Deadline deadline() const { return deadline_; }

  /// The payload of the reply to all ranks: `nonce`, then the cards by rank. Complete rounds only.
  std::vector<std::byte> roster(const wire::Bytes32& nonce) const;

 private:
  struct Member {
    Card card;
    std::string from;
  };

  std::vector<int> missing() const;

  int size_ = 0;        // as the first rank to join said
  int first_rank_ = 0;  // who that was
  std::unordered_map<int, Member> members_;
  Deadline deadline_ = Deadline::max();
  std::optional<Error> failure_;
};

}  // namespace tutti
