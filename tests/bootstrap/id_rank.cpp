// A rank that looks in its environment for its id, for as many milliseconds as the argument says,
// and prints it, or the error. A second argument names a library which does that when it is loaded.
#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bootstrap/environment.h"
#include "core/error.h"

int main(int argc, char** argv) {
  if (argc > 2) return ::dlopen(argv[2], RTLD_NOW) != nullptr ? 0 : 1;
  try {
    const std::chrono::milliseconds patience(argc > 1 ? std::atoi(argv[1]) : 1000);
    const auto place = tutti::placement_from_environment();
    fmt::print("{}", tutti::to_string(tutti::unique_id_from_environment(place, patience).id));
  } catch (const tutti::Error& error) {
    fmt::print("{}: {}", tutti::name(error.code()), error.what());
  }
  return 0;
}
