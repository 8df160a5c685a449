// The hosts of `tutti compare --hosts`: each rank runs on a host of its own, a network namespace of
// this machine. Says how to start each program there.
#pragma once

#include <string>
#include <vector>

#include "tools/namespaces.h"

namespace tutti::compare {

struct Program;

class Hosts {
 public:
  /// `megabits`: the most that each host sends in a second; 0: no limit. Throws Error(system) if
  /// namespaces cannot be made.
  Hosts(int ranks, int megabits);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Changes the command so that its ranks run on these hosts.
  void place(Program& program) const;

 private:
  /// `command` begins with the variables of its environment.
  std::vector<std::string> on_first_host(std::vector<std::string> command) const;
  std::vector<std::string> open_mpi(const std::string& launcher, const std::string& program) const;
  std::vector<std::string> hydra(const std::string& launcher, const std::string& program) const;
  std::string addresses(const char* behind) const;

  const int ranks_;
  Namespaces hosts_;
  std::string folder_;  // of the script that starts a program on a host, and of unique ids
};

}  // namespace tutti::compare
