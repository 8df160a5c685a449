// Looks at the ranks of this host from outside, through what their processes keep in shared memory
// anyway (transport/host/nameplate.h). The ranks notice nothing: no thread answers, and they write
// nothing more. The kernel lets the processes' own user look, and root.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tools/top/view.h"
#include "transport/host/control_block.h"

namespace tutti::top {

class Watcher {
 public:
  /// Only of jobs to which a process belongs that is `job`, or comes from it; 0: of all.
  explicit Watcher(int job = 0) : job_(job) {}
  /// What the ranks do now, and have done since the look before.
  View look();

 private:
  struct Mapping;
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::size_t>;  // device, inode, place
  /// What one rank shows in a memfd.
  struct Segment {
    std::shared_ptr<const Mapping> memory;
    std::size_t place = 0;  // its block in it
    int pid = 0;
    // At the look before:
    std::chrono::steady_clock::time_point looked{};
    std::uint64_t host_calls = 0, gpu_calls = 0;
    double waited = 0;
  };
  void find_segments();
  void drop_segments();
  void add_segment(int pid, int folder, const char* name);
  /// The memfd that `name` leads to; null: nothing is there yet, or it cannot be mapped.
  std::shared_ptr<const Mapping> mapping_of(const Key& first, int folder, const char* name,
                                            bool is_segment);
  Member member_of(Segment& segment, bool stands_still);
  void add_processes(View& view);
  void add_starts(View& view);
  void keep_job(View& view) const;

  const int job_;
  std::chrono::steady_clock::time_point found_{};  // segments, last
  std::map<Key, Segment> segments_;
  std::set<Key> seen_;              // in this look
  std::vector<std::string> notes_;  // of that look
  struct Cpu {
    double seconds = 0;
    std::chrono::steady_clock::time_point at{};
  };
  std::map<int, Cpu> cpu_;  // by process
};

}  // namespace tutti::top
