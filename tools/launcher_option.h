// --launcher and --tutti: how a command reaches other hosts, and what it runs there.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tutti {

class LauncherOption {
 public:
  /// Adds both. This object must stay where it is while the command line is parsed.
  void add_to(CLI::App& command);

  /// The words before HOST COMMAND...: the user's, or ssh with its options. Throws
  /// Error(invalid_argument) if there are none.
  std::vector<std::string> connect() const;
  /// ssh hands its command to a shell.
  bool is_ssh() const { return launcher_.empty(); }
  /// Where `tutti` is on the other hosts.
  std::string tutti() const;

 private:
  std::string launcher_, tutti_;
};

}  // namespace tutti
