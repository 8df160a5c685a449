// A library whose constructor looks in the environment for this rank's id, and prints it, or the
// error: as a plugin does that makes a communicator when it is loaded.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "bootstrap/environment.h"
#include "core/error.h"

namespace {

[[gnu::constructor]] void look_for_id() {
  try {
    const auto place = tutti::placement_from_environment();
    const auto id = tutti::unique_id_from_environment(place, std::chrono::seconds(3)).id;
    fmt::print("{}", tutti::to_string(id));
  } catch (const tutti::Error& error) {
    fmt::print("{}: {}", tutti::name(error.code()), error.what());
  }
  std::fflush(stdout);
}

}  // namespace
