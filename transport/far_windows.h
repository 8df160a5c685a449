// Windows between hosts: how a rank writes to the window of a rank of another host, and signals it.
// What it says goes over one link to each peer (network/remote_link.h), in order: a put is a head,
// and its data in as many messages as they need. So a signal comes after all that was put before
// it, and a put finds room where the link has room.
//
// Over RDMA the owner exposes the window to its peers. Their devices write the data of longer puts
// to their place, and the messages say only that they have. Before a window ends, all peers answer
// that they write there no more. Its memory is registered for it alone: a peer that does not answer
// loses its connection, and finds no memory there.
//
// Else the thread that drives the wire of the receiving rank takes the messages in and writes the
// data to the window: a thread of the rank that waits, or the reactor. So the rank may compute
// meanwhile. It checks heads and data against the window first. It drops data for a window that has
// ended; the owner has told all ranks that may write to the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/host/signal_board.h"
#include "transport/network/remote_link.h"
#include "transport/rank_group.h"

namespace tutti {

/// Of this rank: others know it by a key, which is random.
struct WindowTarget {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  SignalBoard board;
  /// Rank `rank` of another host has closed its part of the window. `failed`: its communicator had
  /// failed then, as this one's will hear. From any thread.
  std::function<void(int rank, WindowState state, bool failed)> on_closed;
};

/// This rank's way to the windows of one rank of another host. Thread-safe.
class FarWriter {
 public:
  /// `doorbell`: of this rank. Connects.
  FarWriter(Wire& wire, std::uint64_t communicator, ConnectionShape shape, Doorbell& doorbell);

  /// Writes `bytes` to the window that the peer knows by `key`, and gives signal `signal` (-1:
  /// none), as soon as there is room. Returns a number for is_done(); until that, `from` is read.
  std::uint64_t put(std::uint64_t key, std::uint64_t offset, const void* from, std::size_t bytes,
                    int signal);
  /// This rank has closed its part of the window that the peer knows by `key`; `state`: how;
  /// `failed`: after a failure of the communicator. As put().
  std::uint64_t say_closed(std::uint64_t key, WindowState state, bool failed);
  /// Sends what there is room for. True: all up to put `number` has been read from the user's
  /// memory.
  bool is_done(std::uint64_t number);
  /// Afterwards nobody reads the memory of put `number` any more; the link is of no use from then
  /// on.
  void abandon(std::uint64_t number);
  /// Takes in what has come, and sends what there is room for then.
  void poll();

 private:
  struct Put {
    std::uint64_t key;
    std::uint64_t offset;
    const std::byte* from;
    std::size_t bytes;
    std::uint32_t what;
    bool failed = false;
    bool has_head = false;        // is published, and
    std::size_t published = 0;    // so many bytes,
    std::uint64_t zero_copy = 0;  // the last of them from where they lie; the message's number
  };
  std::uint64_t add(const Put& put);
  void publish();
  bool publish(Put& put);
  void settle();

  std::mutex mutex_;
  OutLink& link_;
  const std::size_t most_bytes_;
  std::deque<Put> puts_;     // that are not done
  std::size_t whole_ = 0;    // how many of them are published
  std::uint64_t added_ = 0;  // numbers, from 1
  std::size_t unrung_ = 0;   // bytes
  bool broken_ = false;
};

/// All of a communicator.
class FarWindows {
 public:
  /// Connects to the ranks of other hosts.
  explicit FarWindows(RankGroup& group);
  ~FarWindows();
  FarWindows(const FarWindows&) = delete;
  FarWindows& operator=(const FarWindows&) = delete;

  /// From now on others may write there, and be told that it is closed.
  void open(std::uint64_t key, WindowTarget target);
  /// When this returns, nobody writes there.
  void close(std::uint64_t key);
  FarWriter& writer(int peer) { return *writers_.at(peer); }

 private:
  /// What comes from one rank.
  class Reader final : public InLink::Taker {
   public:
    Reader(FarWindows& windows, int peer) : windows_(windows), peer_(peer) {}
    bool take(std::uint32_t tag, const std::byte* payload, std::uint32_t bytes) override;

   private:
    bool take_head(const std::byte* payload, std::uint32_t bytes);
    /// All data of the put have come. With the lock.
    void give_signal(const WindowTarget& target);

    FarWindows& windows_;
    const int peer_;
    // Of the put at hand:
    std::uint64_t key_ = 0, offset_ = 0, left_ = 0;
    int signal_ = -1;
    bool in_window_ = false;  // all of it, as its head says
  };
  struct Incoming {
    Wire* wire = nullptr;
    InLink* link = nullptr;  // null: nothing comes yet
    std::unique_ptr<Reader> reader;
  };
  void connect(int peer);
  void stop_taking();

  RankGroup& group_;
  std::mutex mutex_;  // of:
  std::unordered_map<std::uint64_t, WindowTarget> targets_;
  std::map<int, std::unique_ptr<FarWriter>> writers_;
  std::map<int, Incoming> readers_;
};

}  // namespace tutti
