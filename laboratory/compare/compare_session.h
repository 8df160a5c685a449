// A program that takes part in a comparison (laboratory/peers, laboratory/limits): it starts once,
// measures during its turns, and is blocked in between (laboratory/peers/turns.h has the protocol).
// Nothing of it remains when its session ends, whatever happens.
#pragma once

#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "laboratory/compare/compare_programs.h"
#include "transport/sockets/socket.h"

namespace tutti::compare {

/// While it lives, SIGINT, SIGTERM and SIGHUP do not end this process: sessions see them, and
/// throw, so everything is cleaned up.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Readable when one has come.
  int fd() const { return fd_.fd(); }
  /// What was blocked before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

struct SessionOptions {
  int ranks = 2;
  int patience = 120;                  // seconds; with a start, and with a turn
  std::vector<std::string> arguments;  // of the program; --folder is added
};

class Session {
 public:
  /// Starts the program, and returns when all its ranks wait for a turn. Throws Error(system) with
  /// what it wrote to stderr if it fails, Error(timed_out), Error(invalid_argument) if it has no
  /// such collective or type, and Error(aborted) after a signal. So does take_turn().
  Session(const Program& program, const SessionOptions& options, const Signals& signals);
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  /// The transport of the program's bytes, if it says so; else "".
  const std::string& carrier() const;

  /// Microseconds of one call on `bytes` bytes, of each way that the program has to do it.
  std::vector<double> take_turn(std::size_t bytes);

 private:
  class Running;
  std::unique_ptr<Running> running_;
};

}  // namespace tutti::compare
