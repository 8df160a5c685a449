// One meeting of the ranks of a job, without sockets: who has joined, who has the roster, what is
// wrong, when it is over. The first failure is final and every rank gets the same one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"

namespace tutti {

class RendezvousRound {
 public:
  enum class Phase {
    joining,  // ranks hand in their cards
    passing,  // all have joined; the roster goes down the tree
    met,      // all have it
  };

  /// `from` is where the rank's connection comes from, for messages. Fields of the hello are not
  /// trusted. An error returned here is about this hello alone; the round goes on without it.
  std::optional<Error> join(const wire::Hello& hello, std::span<const std::byte> card,
                            const std::string& from);
  /// `rank` has the roster.
  void have(int rank);
  /// `rank` cannot get the roster.
  void fail(const Error& why);
  /// A rank that had joined is gone before all had met.
  void leave(int rank);
  /// The round's deadline has passed; `trouble` ("": none) is what the server knows of the reason.
  void expire(std::string_view trouble);

  Phase phase() const { return phase_; }
  const std::optional<Error>& failure() const { return failure_; }
  bool over() const { return failure_ || phase_ == Phase::met; }
  /// When the first of its members gives up.
  Deadline deadline() const { return deadline_; }
  int size() const { return size_; }

  /// Once all have joined: what all of them get, and where the children of `rank` find it.
  std::vector<std::byte> roster() const;
  const wire::Endpoint& endpoint(int rank) const { return members_.at(rank).listens; }

 private:
  struct Member {
    std::vector<std::byte> card;
    wire::Endpoint listens;
    std::string from;
    bool has_roster = false;
  };

  std::vector<int> missing() const;
  /// The ranks that hold up the roster: they do not have it, though who passes it to them does; or
  /// they have it, and it reaches none of those that they pass it to.
  std::vector<int> holding_up() const;

  Phase phase_ = Phase::joining;
  int size_ = 0;        // as the first rank to join said
  int first_rank_ = 0;  // who that was
  int have_ = 0;        // the number of ranks that have the roster
  std::unordered_map<int, Member> members_;
  Deadline deadline_ = Deadline::max();
  std::optional<Error> failure_;
};

}  // namespace tutti
