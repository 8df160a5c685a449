// An environment without the variables of launchers, except for those that a test sets.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace tutti {

using Variables = std::map<std::string, std::string>;

/// These variables and no others of any launcher, while it lives.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix :
           {"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_UNIQUE_ID", "RANK", "WORLD_SIZE", "LOCAL_",
            "TORCHELASTIC", "MASTER_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_"}) {
        if (name.starts_with(prefix)) names.push_back(name);
      }
    }
    for (const auto& name : names) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    names_ = variables;
  }
  ~Environment() {
    for (const auto& [name, value] : names_) unsetenv(name.c_str());
  }

 private:
  Variables names_;
};

}  // namespace tutti
