// What a communicator does about its ranks on other hosts: it keeps a copy of what each has said of
// itself when it was asked last, hears who is lost, and passes on along the tree of hosts what all
// must know: whether everybody has joined (joining.h), and the first failure.
//
// The ranks of a host are of one mind about who is lost (host_losses.h). Where a rank's process has
// ended, that is this rank alone. Where nothing comes through from it any more, it is the whole of
// its host: what two hosts' connections suffer one after the other is one event, and where their
// ranks part has to be one place.
//
// Notes are numbers in the byte order of the machine, which the handshake has compared.
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
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/control_block.h"
#include "transport/host_losses.h"
#include "transport/host_tree.h"
#include "transport/joining.h"
#include "transport/network.h"
#include "transport/ring_memory.h"

namespace tutti {

class OtherHosts final : Network::Listener {
 public:
  /// What it does to the communicator here; from any thread.
  struct Callbacks {
    std::function<bool(const Failure&)> record;  // unless there is a failure; false: there was
    std::function<void()> ring_all;              // the ranks of this host
    std::function<const ControlBlock&()> mine;
    std::function<void(int rank, Loss how, const std::string& why)> lost;
    std::function<std::optional<Failure>()> failure;
  };
  /// `joining` is this host's word on whether all have joined; `losses` its ranks share, too.
  OtherHosts(Network& network, std::uint64_t group, HostTree::Ranks ranks,
             std::atomic<std::uint64_t>& joining, HostLosses losses, Callbacks callbacks);
  ~OtherHosts();
  /// From now on it hears what the others say.
  void begin() { network_.join(group_, *this); }

  Joining& joining() { return joining_; }
  /// What `rank`, of another host, has said last.
  ControlBlock& copy(int rank);

  /// Lets all other hosts know of the first failure here.
  void spread(const Failure& failure) { spread(failure, -1); }

  /// Asks `rank` what it does, now and then at most; the answer changes its copy.
  void ask(int rank);
  /// Tells `rank` what it would hear if it asked.
  void tell(int rank);
  /// Asks, and waits for the answers of those that are there, until then at most.
  void refresh(std::span<const int> ranks, Deadline deadline);

  /// Why nothing comes from `rank` any more; none: it is there, or has left.
  std::optional<std::string> why_lost(int rank) const;
  /// Those that are lost to this host.
  std::vector<int> lost();
  /// `rank`, of another host, is lost to this host from now on, with all of its host where it is
  /// cut off. That alone is no failure of the communicator.
  void lose(int rank, Loss how, const std::string& why);
  /// Takes in what has come, and sends on what was left.
  void poll() { network_.poll(); }
  Network& network() { return network_; }

 private:
  enum Type : std::uint32_t { kFailure = 3, kAsk = 4, kStatus = 5 };  // and those of Joining

  void on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) override;
  void on_left(int member, std::uint64_t communicator, int because_of) override;
  void on_lost(int member, Loss how, const std::string& why) override;

  void on_failure(int rank, const Failure& failure);
  void spread(const Failure& failure, int except);
  /// That `rank` has left, as far as is known.
  bool is_first_time(int rank);

  Network& network_;
  const std::uint64_t group_;
  HostTree tree_;
  HostLosses losses_;
  Callbacks callbacks_;
  Joining joining_;
  std::unique_ptr<RingMemory>
      copies_;  // ControlBlocks by rank; those that nobody asks for take none

  mutable std::mutex mutex_;
  std::map<int, std::string> lost_;
  std::set<int> left_;  // before all had joined, without saying why
  struct Asked {
    std::chrono::steady_clock::time_point last{};
    std::uint64_t answers = 0;
  };
  std::map<int, Asked> asked_;
};

}  // namespace tutti
