// Where `tutti compare --hosts` has the programs run: each rank on a host of its own, a network
// namespace of this machine. Says how each of them is started there.
#pragma once

#include <string>
#include <vector>

#include "tools/namespaces.h"

namespace tutti::compare {

struct Program;

class Hosts {
 public:
  /// `megabits`: what each host sends, a second, at most; 0: as much as it can. Throws
  /// Error(system) where there can be none.
  Hosts(int ranks, int megabits);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Changes the command so that its ranks are on these hosts.
  void place(Program& program) const;

 private:
  /// `command` begins with the variables of its environment.
  std::vector<std::string> on_first_host(std::vector<std::string> command) const;
  std::vector<std::string> open_mpi(const std::string& program) const;
  std::vector<std::string> mpich(const std::string& program) const;
  std::string addresses(const char* behind) const;

  const int ranks_;
  Namespaces hosts_;
  std::string folder_;  // of the script that starts a program on a host, and of unique ids
};

}  // namespace tutti::compare
