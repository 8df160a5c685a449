// What a simulated rank is to do, and what it says of that. The rank's program (rank.cpp) is linked
// with the library and loaded once for each rank; the simulator calls it through this header alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::simulator {

/// One step of the ranks' common program.
struct Step {
  enum class Kind : std::uint8_t {
    all_reduce,
    broadcast,
    barrier,
    started,
    message_ring,
    split,
    window,
    bad_window
  };
  Kind kind;
  std::uint32_t count;  // elements
};

/// What a rank has seen. Ranks are named by their numbers at the start.
struct Outcome {
  enum class Kind : std::uint8_t {
    met,       // `ranks`: the members of its first communicator
    error,     // a call has thrown: `code`, `blamed`, `text`
    shrunk,    // `ranks`: the members that go on
    wrong,     // a result was wrong: `text`
    finished,  // it has made all steps
    left,      // its communicator is gone, and so should be all else
  };
  Kind kind;
  int rank;
  int code = 0;     // an ErrorCode
  int blamed = -1;  // its rank
  std::string text;
  std::vector<int> ranks;
};

/// What the world does for a rank's program.
class Services {
 public:
  virtual ~Services() = default;
  /// What a program carries from rank to rank by itself.
  virtual void publish(const std::string& key, const std::string& text) = 0;
  /// Waits for it; "": it will not come.
  virtual std::string await(const std::string& key) = 0;
  /// For ranks that meet by handles, as a launcher does it: hands in one for the next meeting, and
  /// returns its number; and who meets then, once that is known.
  virtual int enter(const std::string& handle) = 0;
  struct Meeting {
    std::vector<std::string> handles;
    std::vector<int> ranks;
  };
  virtual Meeting wait_for_meeting(int number) = 0;
  virtual void say(const Outcome& outcome) = 0;
  virtual void tell(const std::string& text) = 0;
  /// The names of the files of memory that the calling process has open, or has been sent and not
  /// taken.
  virtual std::vector<std::string> memory_files() = 0;
};

struct Task {
  int rank;
  int size;
  int ranks_of_a_host;
  bool by_handles;  // they meet by reconfigure(), after each loss again; else they shrink
  std::vector<Step> steps;
  Services* services;
};

/// The module's function `tutti_simulated_rank`: the main() of a rank. Ends as a process does that
/// returns from its main().
using RankFunction = void (*)(const Task&);
/// `tutti_simulated_warm`: what each rank would find out of its machine.
using WarmFunction = void (*)();
/// `tutti_simulated_exit`: what happens between main() and the end of the process.
using ExitFunction = void (*)();

}  // namespace tutti::simulator
