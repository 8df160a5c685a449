// Memory that a group gives back while it is idle, and how much it has.
#include "backend.h"
#include "errors.h"
#include "python.h"

namespace tutti::pytorch {

void Backend::suspend() {
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  const auto released = [&] {
    auto held = lock();
    if (suspended_) return;
    check_usable();
    held.unlock();
    comm()->release_memory();
    held.lock();
    suspended_ = true;
  };
  translated(released, [this](const Error& error) { hears(error); });
}

// The next operations take the memory.
void Backend::resume() {
  const auto held = lock();
  suspended_ = false;
}

std::unordered_map<std::string, std::uint64_t> Backend::getMemoryStats() {
  return translated([&] {
    const MemoryUse use = comm()->memory();
    const auto held = lock();
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
