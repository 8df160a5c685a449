// Memory that a group gives back while it is idle, and how much it has.
#include "backend.h"
#include "errors.h"
#include "python.h"

namespace tutti::pytorch {

void Backend::suspend() {
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  const auto released = [&] {
    const auto turn = take_turn();
    if (suspended_) return;
    check_usable();
    comm_.release_memory();
    suspended_ = true;
  };
  translated(released, [this](const Error& error) { hears(error); });
}

// The next operations take the memory.
void Backend::resume() {
  const auto turn = take_turn();
  suspended_ = false;
}

std::unordered_map<std::string, std::uint64_t> Backend::getMemoryStats() {
  return translated([&] {
    const auto turn = take_turn();
    const MemoryUse use = comm_.memory();
    return std::unordered_map<std::string, std::uint64_t>{
        {"links", use.links},
        {"staging", use.staging},
        {"control", use.control},
        {"total", use.links + use.staging + use.control},
        {"suspended", suspended_ ? 1U : 0U},
    };
  });
}

}  // namespace tutti::pytorch
