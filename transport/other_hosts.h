// What a communicator does about its ranks on other hosts: it keeps a copy of what each has said of
// itself when it was asked last, hears who is lost, and passes on along a tree of hosts what all
// must know: that everybody has joined, and the first failure.
//
// The hosts are numbered by their first ranks, in order; each talks to the one above it and to
// those below it, through the first of its ranks that is not gone. Notes are numbers in the byte
// order of the machine, which the handshake has compared.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/control_block.h"
#include "transport/network.h"
#include "transport/ring_memory.h"

namespace tutti {

class OtherHosts final : Network::Listener {
 public:
  struct Ranks {
    std::vector<int> members;  // numbers in the job, by rank
    std::vector<int> hosts;    // by rank, any numbers
    int self = 0;
  };
  /// What it does to the communicator here; from any thread.
  struct Callbacks {
    std::function<bool(const Failure&)> record;  // unless there is a failure; false: there was
    std::function<void()> ring_all;              // the ranks of this host
    std::function<const ControlBlock&()> mine;
    std::function<void(int rank, const std::string& why)> lost;
    std::function<bool()> failed;
  };
  OtherHosts(Network& network, std::uint64_t group, Ranks ranks, Callbacks callbacks);
  ~OtherHosts();
  /// From now on it hears what the others say.
  void begin() { network_.join(group_, *this); }

  bool is_here(int rank) const { return host_of(rank) == host_of(ranks_.self); }
  /// The first rank of this host.
  int first_here() const { return firsts_[static_cast<std::size_t>(own_host_)]; }
  int hosts() const { return static_cast<int>(firsts_.size()); }
  /// What `rank`, of another host, has said last.
  ControlBlock& copy(int rank);

  /// Called by the first rank of each host when all ranks of its host have joined; whether kernels
  /// copy for all of them. Returns false before all hosts are there. Does not wait.
  void say_ready(bool cma_works);
  std::optional<bool> all_ready() const;

  /// Lets all other hosts know of the first failure here.
  void spread(const Failure& failure) { spread(failure, -1); }

  /// Asks `rank` what it does, now and then at most; the answer changes its copy.
  void ask(int rank);
  /// Asks, and waits for the answer; false: there was none by then.
  bool refresh(int rank, Deadline deadline);

  /// Why nothing comes from `rank` any more; none: it is there, or has left.
  std::optional<std::string> why_lost(int rank) const;
  std::vector<int> lost() const;
  /// Takes in what has come, and sends on what was left.
  void poll() { network_.poll(); }
  Network& network() { return network_; }

 private:
  enum Type : std::uint32_t { kReady = 1, kAllReady = 2, kFailure = 3, kAsk = 4, kStatus = 5 };

  void on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) override;
  void on_left(int member) override;
  void on_lost(int member, const std::string& why) override;

  int host_of(int rank) const { return ranks_.hosts[static_cast<std::size_t>(rank)]; }
  int rank_of(int member) const;
  /// Hosts above and below this one in the tree.
  std::vector<int> neighbours() const;
  /// Sends to the first rank of `host` that is not lost.
  void tell_host(int host, Type type, std::span<const std::byte> bytes);
  void spread(const Failure& failure, int except);
  void check_ready();

  Network& network_;
  const std::uint64_t group_;
  Ranks ranks_;  // hosts: numbered from 0 now
  Callbacks callbacks_;
  std::vector<int> firsts_;  // of each host
  std::vector<std::vector<int>> on_host_;
  int own_host_ = 0;
  std::map<int, int> by_member_;
  std::unique_ptr<RingMemory>
      copies_;  // ControlBlocks by rank; those that nobody asks for take none

  mutable std::mutex mutex_;
  std::size_t ready_below_ = 0;
  bool ready_here_ = false, said_ready_ = false;
  bool cma_works_ = true;
  std::optional<bool> all_ready_;
  std::map<int, std::string> lost_;
  struct Asked {
    std::chrono::steady_clock::time_point last{};
    std::uint64_t answers = 0;
  };
  std::map<int, Asked> asked_;
};

}  // namespace tutti
