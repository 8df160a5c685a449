// A job whose ranks come and go while it runs: `tutti run --elastic 2:4 program` starts a new
// process for each that dies, and each of them has an ElasticJob (docs/elastic.md):
//
//     tutti::ElasticJob job;
//     tutti::Communicator comm;
//     for (bool joins = true; ...;) {
//       try {
//         if (joins || job.should_join(comm)) {
//           job.join(comm);                    // meets the others
//           take_state_from_who_is_furthest(comm);
//           joins = false;
//         }
//         step(comm);
//       } catch (const tutti::Error& e) {      // a rank has died: the same again
//         using tutti::ErrorCode;
//         if (e.code() != ErrorCode::peer_lost && e.code() != ErrorCode::aborted) throw;
//         joins = true;
//       }
//     }
//
// One thread at a time uses it, and a process has one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// Relative, so that the installed headers need only <prefix>/include on the search path.
#include "communicator.h"

namespace tutti {

class ElasticJob {
 public:
  /// Throws Error(invalid_usage) where `tutti run --elastic` has not started this process.
  ElasticJob();
  ~ElasticJob();
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;

  /// The newest round that the job wants. A round is a communicator: there is a new one whenever a
  /// rank has died, or another one is there. Costs a system call; different ranks hear of a round
  /// at different times.
  std::uint64_t number();
  /// The round of the newest join().
  std::uint64_t joined() const { return joined_; }
  /// Collective, an all_reduce of one number: whether any rank of `comm` knows of a newer round.
  /// The ranks get the same answer, so that all call join() after the same step.
  bool should_join(Communicator& comm);
  /// `comm` becomes the next communicator, of the ranks that are there: those of before in their
  /// order, then the new ones. It may be empty (the first time), or have failed. All ranks call
  /// this: after a should_join(), or when a call has failed. Where a rank dies meanwhile, they try
  /// again. Returns when all ranks have joined. Options::rendezvous_timeout bounds the whole call;
  /// when it throws, `comm` is good for another join(), and for nothing else. Throws, at once,
  /// mismatch and invalid_argument, which the next attempt would meet again (settings that differ
  /// among the ranks, say), and invalid_usage inside of a group(), which leaves `comm` as it was;
  /// timed_out says why the newest attempt has failed. `options` are those of the next
  /// communicator: it does not inherit the options of `comm`, which new ranks do not have.
  void join(Communicator& comm, const Options& options = {});

 private:
  struct Members {
    std::uint64_t number = 0;
    std::vector<std::string> handles;
  };
  bool read(std::uint64_t offered, Members& members);
  Members meet(const std::string& handle, const std::string& failure,
               std::chrono::steady_clock::time_point until);

  int socket_ = -1;
  std::uint64_t newest_ = 0, offered_ = 0, joined_ = 0;
  bool agreed_ = false;  // by should_join()
};

}  // namespace tutti
