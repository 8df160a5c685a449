// Messages with tags, and from any source, over a communicator that matches messages in order: a
// header announces each message. A rank asks another rank for a header only while one of its recvs
// could match. It keeps a message for which no recv waits yet.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "operation.h"

namespace tutti::pytorch {

class Messages {
 public:
  /// Runs once, on the engine's thread or the caller's, with the error, if any, and the sender of
  /// the message.
  using Done = std::function<void(const std::optional<Error>& why, int source)>;
  /// `comm` ends before this does, as it may run callbacks until then.
  explicit Messages(Communicator& comm);

  struct Memory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    at::ScalarType type = at::kByte;
  };
  void send(Memory from, int peer, int tag, std::chrono::nanoseconds timeout, Done done);
  /// `source`: a rank, or kAny. Whether this rank alone can send it: then the silence of another
  /// rank does not end it. expire() does; the waiting thread calls it now and then.
  bool receive(Memory to, int source, int tag, std::chrono::nanoseconds timeout, Done done);
  void expire();
  static constexpr int kAny = -1;

  /// Stops all waiting: messages that have not come fail.
  void leave();

 private:
  struct Header {
    std::uint64_t bytes = 0;
    std::int32_t tag = 0;
    std::int32_t type = 0;
  };
  struct Posted {
    Memory to;
    int source;
    int tag;
    std::chrono::nanoseconds timeout;
    Done done;
    std::chrono::steady_clock::time_point posted = std::chrono::steady_clock::now();
  };
  struct Kept {  // came before its recv
    Header header;
    std::vector<std::byte> data;
  };
  struct Peer {
    bool busy = false;  // a header, or what it announces, is under way
    Future asked;       // for a header, while that has not come
    bool withdrawn = false;
    Header header;
    std::deque<std::shared_ptr<Kept>> kept;
  };

  // With the lock:
  void ask(int source);
  void arrived(int source);
  /// Withdraws requests that are no longer needed.
  void withdraw_unwanted();
  std::optional<Posted> take(int source, int tag);
  Future start(const Call& call, std::function<void(const std::optional<Error>&)> over);
  bool wants(int source) const;
  bool is_own(int source) const { return source == rank_ || peers_.size() == 1; }
  // Without:
  void fail(int source, const Error& why);
  void deliver(const Posted& to, int source, const Header& header);
  /// Describes a failed receive: its request, and the messages that came instead.
  std::string waited_for(const Posted& posted);
  static std::string describe(std::uint64_t bytes, int type);

  Communicator& comm_;
  const int rank_;
  std::recursive_mutex mutex_;  // what cannot be started is over at once
  std::vector<Peer> peers_;
  std::list<Posted> posted_;
};

}  // namespace tutti::pytorch
