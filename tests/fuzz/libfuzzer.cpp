// A target under libFuzzer (libfuzzer.sh). Where TUTTI_FUZZ_SEEDS names a folder, the target's own
// seeds are written there first: it is the corpus to begin with.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/target.h"

namespace {

tutti::fuzz::Target target;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  const std::string program = std::filesystem::path((*argv)[0]).filename();
  for (const tutti::fuzz::Target& one : tutti::fuzz::targets()) {
    if (program == "fuzz_" + std::string(one.name)) target = one;
  }
  if (target.run == nullptr) {
    std::fprintf(stderr, "%s is no target: its name has to be fuzz_TARGET\n", program.c_str());
    std::exit(2);
  }
  const char* const folder = std::getenv("TUTTI_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : target.seeds()) {
    std::ofstream(std::string(folder) + "/seed-" + std::to_string(number++), std::ios::binary)
        << seed;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target.run({reinterpret_cast<const char*>(data), size});  // what it throws ends the process
  return 0;
}
