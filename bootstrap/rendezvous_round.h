// One meeting of the ranks of a job, without sockets: which ranks have joined, which have the
// roster, the first failure, and the end. The first failure is final and every rank gets the same
// one.
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

  /// `from` is the address of the rank's connection, for messages. Fields of the hello are
  /// untrusted. A returned error concerns this hello alone; the round goes on without it.
  std::optional<Error> join(const protocol::Hello& hello, std::span<const std::byte> card,
                            const std::string& from);
  /// `rank` has the roster.
  void have(int rank);
  /// `rank` cannot get the roster.
  void fail(const Error& why);
  /// A joined rank has gone before all had met.
  void leave(int rank);
  /// The round's deadline has passed; `trouble` ("": none) is the server's knowledge of the reason.
  void expire(std::string_view trouble);

  Phase phase() const { return phase_; }
  const std::optional<Error>& failure() const { return failure_; }
  bool over() const { return failure_ || phase_ == Phase::met; }
  /// The time at which the first of its members gives up.
  Deadline deadline() const { return deadline_; }
  int size() const { return size_; }
  /// What its ranks have come to.
  const Appointment& about() const { return about_; }
  bool has(int rank) const { return members_.contains(rank); }

  /// Once all have joined: what each of them gets, and the address at which the children of `rank`
  /// find it.
  std::vector<std::byte> roster() const;
  const protocol::Endpoint& endpoint(int rank) const { return members_.at(rank).listens; }

 private:
  struct Member {
    std::vector<std::byte> card;
    protocol::Endpoint listens;
    std::string from;
    bool has_roster = false;
  };

  std::vector<int> missing() const;
  /// The ranks that hold up the roster. Either they do not have it, though their parent does; or
  /// they have it, and none of their children gets it.
  std::vector<int> holding_up() const;

  Phase phase_ = Phase::joining;
  int size_ = 0;        // by the first rank that joined
  Appointment about_;   // the same
  int first_rank_ = 0;  // that rank
  int have_ = 0;        // the number of ranks that have the roster
  std::unordered_map<int, Member> members_;
  Deadline deadline_ = Deadline::max();
  std::optional<Error> failure_;
};

}  // namespace tutti
