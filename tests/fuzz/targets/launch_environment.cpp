// What launchers say of a process's place, by variables that anybody may have set: a place in a
// job, none, or a sentence that names the variable.
#include <array>
#include <cstdlib>

#include "bootstrap/launcher.h"
#include "bootstrap/rendezvous_protocol.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::launch_environment {
namespace {

constexpr std::array kNames{"TUTTI_RANK", "TUTTI_SIZE", "RANK", "WORLD_SIZE"};

/// Their values, with NULs between.
void run(std::string_view input) {
  Input in(input);
  for (const char* const name : kNames) {
    const std::string value(in.take(std::min(in.rest().find('\0'), in.rest().size())));
    in.take(1);
    if (value.starts_with('-') && value.size() == 1) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value.c_str(), 1);
    }
  }
  for (const Launcher* const launcher : {&kTuttiRun, &kPlainTorchrun}) {
    std::optional<Placement> place;
    try {
      place = placement_from(*launcher);
    } catch (const Error& error) {
      require(error.code() == ErrorCode::invalid_usage, "it is refused as usage");
      const std::string_view said = error.what();
      require(said.find(launcher->rank) != said.npos || said.find(launcher->size) != said.npos,
              "the error names a variable");
    }
    if (place) {
      require(place->rank >= 0 && place->rank < place->size && place->size <= protocol::kMaxRanks,
              "a place is one of a job");
    }
  }
  for (const char* const name : kNames) ::unsetenv(name);
}

std::vector<std::string> seeds() {
  return {std::string("0\0002\0001\0003", 7), std::string("-\0-\0000\0001", 7),
          std::string("\0\0-\0001", 5)};
}

const Registered target({"launch_environment", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::launch_environment
