// A rank of an elastic job and its launcher talk over a pair of sockets, in messages of
// comm/elastic_message.h. The rank inherits one of the sockets. Nothing here waits: the owner
// polls.
#pragma once

#include <poll.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

class RankTalk {
 public:
  /// The rank's end. Throws Error(system).
  FileDescriptor open();
  void close() { *this = RankTalk(); }

  /// Nothing is lost, and the order stays, however late the rank reads.
  void say(std::string message);
  /// Sends what could not be sent before.
  void write();
  /// A message that has come.
  std::optional<std::string> read();
  void add_polls(std::vector<pollfd>& polls) const;

 private:
  FileDescriptor socket_;
  std::deque<std::string> unsent_;
};

}  // namespace tutti
