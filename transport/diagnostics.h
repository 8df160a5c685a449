// What the ranks of a communicator do, for error messages and reports: how far each is, which rank
// it waits for, and which of its calls was refused. All of it explains, and decides nothing.
//
// Each rank writes it in its own control block. A rank of another host is asked for its block; the
// answer changes the copy here (host/control_copy.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "transport/control_blocks.h"
#include "transport/host_tree.h"

namespace tutti {

class Diagnostics {
 public:
  /// `tree` leads to the other hosts; null: there are none.
  Diagnostics(const Members& members, ControlBlocks& blocks, HostTree* tree)
      : members_(members), blocks_(blocks), tree_(tree) {}
  ~Diagnostics();
  Diagnostics(const Diagnostics&) = delete;
  Diagnostics& operator=(const Diagnostics&) = delete;
  /// From now on this rank's other communicators hear which rank it waits for here, and the
  /// other way round.
  void begin();

  // What this rank does.
  /// Says that this rank waits for `peer`.
  void publish_wait(int peer, std::chrono::steady_clock::time_point now);
  /// Says so to a program that looks from outside (host/nameplate.h): `call`, which was `started`
  /// or blocks its caller, waits `since` then.
  void show_wait(int peer, std::string_view call, bool started,
                 std::chrono::steady_clock::time_point since,
                 std::chrono::steady_clock::time_point now);
  /// The wait that began then is over.
  void end_wait(std::chrono::steady_clock::time_point since);
  /// A call of this rank throws this.
  void note_error(std::string_view text);
  /// Says that this rank is `doing` something, for which it waits: for the other ranks here, and
  /// for those of its other communicators.
  void say_waiting(std::string_view doing);
  /// " while waiting for ..."; "" if it has not waited for long.
  std::string own_doing_text() const;

  // What another rank does.
  /// The rank for which a rank that waits for `peer` waits in the end: `peer`, or the one for which
  /// `peer` waits, and so on, to the first that has not waited since `recently`. Where they wait in
  /// a circle: `peer`.
  int end_of_line(int peer, std::chrono::steady_clock::time_point recently) const;
  /// end_of_line() once the rank there, also on another host, was asked: takes a second at most.
  int asked_end_of_line(int peer, std::chrono::steady_clock::time_point recently);
  /// "step 3 of its operation #12": the last one that rank `peer` has finished.
  std::string progress_text(int peer) const;
  static constexpr const char* kNoProgress = "no step of any operation";
  /// " after step 3 of its operation #12", of a rank that is lost. "" where that is not known: of a
  /// rank on another host, unless it has answered within the last second.
  std::string last_progress_text(int peer);
  /// "; a call of rank 1 was refused: ...", if that is the last thing that rank `peer` has called;
  /// else "".
  std::string refusal_text(int peer) const;
  /// "; that rank is itself waiting ...", here or in another communicator, if it says so; else "".
  std::string waiting_text(int peer) const;

  // Of ranks on other hosts; nothing happens for the others.
  /// Asks rank `rank` what it does, now and then at most; the answer comes later.
  void ask(int rank);
  /// Tells rank `rank` what this one has said of itself, before it asks.
  void tell(int rank);
  /// Asks, and waits for the answer for a second at most.
  void refresh(int rank);
  /// Asks all ranks of other hosts, or the first ones of many, and waits for a moment at most.
  void refresh_others();

  /// True where the note was a question or an answer.
  bool on_note(int rank, std::uint32_t type, std::span<const std::byte> bytes);
  /// Rank `rank` is lost, and will answer nothing.
  void expect_no_answer(int rank);

 private:
  enum Type : std::uint32_t { kAsk = 4, kStatus = 5 };  // Joining and OtherHosts have others
  struct Asked {
    std::chrono::steady_clock::time_point last{};
    std::uint64_t answers = 0;
    std::chrono::steady_clock::time_point answered{};  // the newest
    bool lost = false;
  };
  bool is_far(int rank) const { return tree_ != nullptr && !tree_->is_here(rank); }
  void refresh(std::span<const int> ranks, Deadline deadline);

  const Members& members_;
  ControlBlocks& blocks_;
  HostTree* const tree_;
  std::mutex mutex_;  // of:
  std::map<int, Asked> asked_;
};

}  // namespace tutti
